// Package cli is kubectl rollcall: what an operator does by hand.
//
// It guarantees the usual kubectl flags, the exit codes of the steps, and that
// looking changes nothing. What changes something runs the same code as a step.
package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/internal/version"
	"github.com/rollcall-dev/rollcall/steps/forceunlock"
)

// options are what every command shares.
type options struct {
	flags   *genericclioptions.ConfigFlags
	network string
}

// Command returns the root command.
func Command() *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:           "kubectl-rollcall",
		Short:         "See and mend what Rollcall does to a validator network",
		Version:       version.String(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rollcall"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	o.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.network, "network", "", "ValidatorNetwork; may be left out when the namespace has exactly one")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fault.New(fault.Config, "%w", err) })
	root.AddCommand(o.status(), o.lock(), o.forceUnlock())
	return root
}

// deps connects with the flags' cluster and namespace.
func (o *options) deps(cmd *cobra.Command, reason string) (*step.Deps, error) {
	loader := o.flags.ToRawKubeConfigLoader()
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fault.New(fault.Config, "find a cluster: %w", err)
	}
	ns, _, err := loader.Namespace()
	if err != nil {
		return nil, fault.New(fault.Config, "find the namespace: %w", err)
	}
	c := &step.Common{Network: o.network, Namespace: ns, Reason: reason, RunUID: string(uuid.NewUUID())}
	return step.Connect(cmd.Context(), cmd.Name(), c, config, ns, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
}

// read connects and reads the network, for the commands that only look.
func (o *options) read(cmd *cobra.Command) (*step.Deps, *v1alpha1.ValidatorNetwork, error) {
	d, err := o.deps(cmd, "")
	if err != nil {
		return nil, nil, err
	}
	n, err := d.Store.Get(cmd.Context())
	return d, n, err
}

func (o *options) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the network, its validators and the last operation, as recorded",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, n, err := o.read(cmd)
			if err != nil {
				return err
			}
			return writeStatus(cmd.OutOrStdout(), n)
		},
	}
}

func writeStatus(w io.Writer, n *v1alpha1.ValidatorNetwork) error {
	s := n.Status
	fmt.Fprintf(w, "Network %s/%s on chain %s: %d wanted, %d bonded, %d signing, %d jailed at height %d\n",
		n.Namespace, n.Name, n.Spec.Chain.ChainID, n.Spec.Validators, s.Bonded, s.Signing, s.Jailed, s.Height)
	if op := s.LastOperation; op != nil {
		fmt.Fprintf(w, "Last operation: %s to %d by %s, %s in step %s (token %d): %s\n", op.Type, op.Validators, op.User, op.Phase, op.Step, op.Token, op.Message)
	}
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(t, "ORDINAL\tSTATE\tSIGNING\tPOWER\tJOINED\tLEFT\tADDRESS")
	for _, r := range s.Roster {
		fmt.Fprintf(t, "%d\t%s\t%t\t%d\t%s\t%s\t%s\n", r.Ordinal, r.State, r.Signing, r.Power, dash(r.JoinedHeight), dash(r.LeftHeight), r.Address)
	}
	return t.Flush()
}

func dash(height int64) string {
	if height == 0 {
		return "-"
	}
	return fmt.Sprint(height)
}

func (o *options) lock() *cobra.Command {
	return &cobra.Command{
		Use:   "lock",
		Short: "Show who holds the network's lock, and who held it before",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, n, err := o.read(cmd)
			if err != nil {
				return err
			}
			l, err := d.Lock(n)
			if err != nil {
				return err
			}
			info, err := l.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			return writeLock(cmd.OutOrStdout(), info)
		},
	}
}

func writeLock(w io.Writer, i lock.Info) error {
	if i.Held {
		fmt.Fprintln(w, strings.Replace((&lock.BusyError{Info: i}).Error(), "is held by another run; nothing was changed", "is held", 1))
	} else {
		fmt.Fprintf(w, "lock %s in namespace %s is free (last token %d)\n", i.Name, i.Namespace, i.Token)
	}
	if len(i.Previous) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tUSER\tOPERATION\tRUN\tENDING\tENDED\tBY")
	for _, p := range i.Previous {
		ended := "-"
		if p.EndedAt != nil {
			ended = duration.HumanDuration(time.Since(p.EndedAt.Time)) + " ago"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Token, p.User, p.Operation, strings.TrimSpace(p.Run.Kind+" "+p.Run.Name), p.Ending, ended, p.By)
	}
	return t.Flush()
}

func (o *options) forceUnlock() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "force-unlock ID --reason TEXT",
		Short:   "Break the lock of a run that can't go on; its next effect is refused",
		Example: `  kubectl rollcall force-unlock demo-7 --reason "node lost, pod stuck in Terminating"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := o.deps(cmd, reason)
			if err != nil {
				return err
			}
			res, err := forceunlock.Run(cmd.Context(), forceunlock.Config{Common: d.Common, LockID: args[0]}, d)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), res.Message)
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the lock (required)")
	return cmd
}
