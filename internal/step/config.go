package step

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Common is the part of the configuration that every step has.
type Common struct {
	Network   string     `desc:"ValidatorNetwork to work on; may be empty when the namespace has exactly one"`
	Namespace string     `desc:"namespace of the network; the pod's or the kubeconfig's own when empty"`
	Operation Operation  `default:"scale-up" desc:"what the run is about: scale-up or scale-down"`
	Wanted    Validators `envconfig:"VALIDATORS" desc:"wanted total number of validators; the network's recorded wish when empty"`
	DryRun    bool       `split_words:"true" desc:"true: plan only, change nothing"`

	RunUID        string `split_words:"true" desc:"UID of the run (Workflow, Job or Pod); a lock is re-entrant for it"`
	RunName       string `split_words:"true" desc:"name of the run's object"`
	RunKind       string `split_words:"true" desc:"kind of the run's object: Workflow, Job or Pod"`
	RunAPIVersion string `envconfig:"RUN_API_VERSION" desc:"API version of the run's object; known for the three kinds"`
	User          string `desc:"who started the run; for people who must wait"`
	Reason        string `desc:"why; for people who must wait"`
	Pod           string `desc:"name of the pod the step runs in"`
	Host          string `desc:"node or machine the step runs on"`

	Cluster            string `desc:"name of the member cluster that this run's object lives in; only with spec.clusters"`
	ClustersKubeconfig string `split_words:"true" default:"/etc/rollcall/clusters/kubeconfig" desc:"kubeconfig with a context per member cluster; read only when the network has spec.clusters"`
}

// Operation is what a run is about.
type Operation string

// The operations.
const (
	ScaleUp   Operation = "scale-up"
	ScaleDown Operation = "scale-down"
)

// UnmarshalText accepts the known operations.
func (o *Operation) UnmarshalText(b []byte) error {
	switch v := Operation(b); v {
	case ScaleUp, ScaleDown:
		*o = v
		return nil
	}
	return fmt.Errorf("must be %s or %s, not %s", ScaleUp, ScaleDown, quote(string(b)))
}

// maxParameter bounds a parameter that is quoted back in an error.
const maxParameter = 40

func quote(s string) string {
	if len(s) > maxParameter {
		s = s[:maxParameter] + "..."
	}
	return strconv.QuoteToASCII(s)
}

// Validators is a wanted number of validators; 0 when not given.
type Validators int32

// UnmarshalText accepts plain decimal digits only: no sign, space, point,
// exponent or leading zero.
func (v *Validators) UnmarshalText(b []byte) error {
	s := string(b)
	bad := fmt.Errorf("must be a whole number from 1 to 1000 in plain digits, such as 5, not %s", quote(s))
	if s == "" || len(s) > 4 || s[0] == '0' {
		return bad
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return bad
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > 1000 {
		return bad
	}
	*v = Validators(n)
	return nil
}

// Load fills spec, a pointer to a configuration struct, from the environment.
// Every problem is listed in the one error that it returns; a value is shown
// only where its type's own parser shows it.
func Load(spec any) error {
	var errs []error
	fields(reflect.ValueOf(spec).Elem(), func(f reflect.StructField, v reflect.Value) {
		key := envKey(f)
		val, set := os.LookupEnv(key)
		// An empty variable counts as unset, except for the number of validators:
		// there an empty workflow parameter is a mistake.
		if !set || (val == "" && f.Type != reflect.TypeFor[Validators]()) {
			errs = append(errs, os.Unsetenv(key)) // envconfig would parse an empty value
			val = f.Tag.Get("default")
			if val == "" {
				if f.Tag.Get("required") == "true" {
					errs = append(errs, fmt.Errorf("%s: is required: %s", key, f.Tag.Get("desc")))
				}
				return
			}
		}
		if err := parse(v, val); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	})
	// envconfig.CheckDisallowed would refuse variables of other steps in the same
	// pod, which share one environment; so only the parsing is checked here.
	if err := errors.Join(errs...); err != nil {
		return fault.New(fault.Config, "bad configuration: %w", err)
	}
	return envconfig.Process(Prefix, spec)
}

// parse sets v from text, for a check before envconfig does the same: envconfig
// stops at the first error and quotes the value.
func parse(v reflect.Value, s string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return errors.New("must be a duration such as 30s or 5m")
		}
		return nil
	case bool:
		if _, err := strconv.ParseBool(s); err != nil {
			return errors.New("must be true or false")
		}
	case int, int32, int64:
		// envconfig would take a leading zero for an octal number.
		_, err := strconv.ParseInt(s, 10, 32)
		if digits := strings.TrimLeft(s, "+-"); err != nil || (len(digits) > 1 && digits[0] == '0') {
			return errors.New("must be a whole number")
		}
	}
	return nil
}

// fields visits the settable leaf fields of a configuration struct.
func fields(v reflect.Value, visit func(reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			fields(v.Field(i), visit)
			continue
		}
		visit(f, v.Field(i))
	}
}

// envKey is the variable of a field, by envconfig's rule.
func envKey(f reflect.StructField) string {
	if k := f.Tag.Get("envconfig"); k != "" {
		return Prefix + "_" + k
	}
	name := f.Name
	if f.Tag.Get("split_words") == "true" {
		var b strings.Builder
		for i, r := range name {
			lower := i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z'
			if lower && r >= 'A' && r <= 'Z' {
				b.WriteByte('_')
			}
			b.WriteRune(r)
		}
		name = b.String()
	}
	return Prefix + "_" + strings.ToUpper(name)
}

// defined is a Step made of a configuration type and a Run function.
type defined[C any] struct {
	name, summary string
	common        func(*C) *Common
	run           func(context.Context, C, *Deps) (Result, error)
}

// Define makes a Step. common returns the embedded Common of a configuration.
func Define[C any](name, summary string, common func(*C) *Common, run func(context.Context, C, *Deps) (Result, error)) Step {
	return defined[C]{name: name, summary: summary, common: common, run: run}
}

// Name implements Step.
func (d defined[C]) Name() string { return d.name }

// Summary implements Step.
func (d defined[C]) Summary() string { return d.summary }

// Run implements Step.
func (d defined[C]) Run(ctx context.Context, log *slog.Logger) (Result, error) {
	log = log.With("step", d.name)
	var c C
	if err := Load(&c); err != nil {
		return Result{}, err
	}
	deps, err := NewDeps(ctx, d.name, d.common(&c), log)
	if err != nil {
		return Result{}, err
	}
	res, err := d.run(ctx, c, deps)
	if err != nil {
		deps.noteFailure(ctx, err)
	}
	return res, err
}

// Help implements Step.
func (d defined[C]) Help(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n\nEverything comes from the environment; %s takes no arguments.\n\n", d.name, d.summary, d.name)
	var c C
	if err := WriteVariables(w, &c); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nExit codes:")
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	for _, e := range fault.Codes {
		fmt.Fprintf(t, "  %d\t%s\t%s\n", int(e.Code), e.Name, e.Meaning)
	}
	return t.Flush()
}

// WriteVariables writes the table of a configuration's variables.
func WriteVariables(w io.Writer, spec any) error {
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(t, "VARIABLE\tTYPE\tDEFAULT\tMEANING")
	fields(reflect.ValueOf(spec).Elem(), func(f reflect.StructField, _ reflect.Value) {
		def := f.Tag.Get("default")
		if def == "" {
			def = "-"
			if f.Tag.Get("required") == "true" {
				def = "(required)"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", envKey(f), typeName(f.Type), def, f.Tag.Get("desc"))
	})
	return t.Flush()
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Validators]():
		return "number"
	case reflect.TypeFor[Operation]():
		return "word"
	}
	return t.Kind().String()
}
