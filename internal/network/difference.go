package network

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// difference makes a merge patch that applies only to the version it was made
// for. raw is the object that old was read from, with fields that this version
// doesn't know. A merge patch leaves those of objects alone, but replaces a
// list as a whole: entries that stay keep theirs here.
func difference(raw map[string]any, old, changed *v1alpha1.ValidatorNetwork) ([]byte, error) {
	a, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode network: %w", err)
	}
	b, err := json.Marshal(changed)
	if err != nil {
		return nil, fmt.Errorf("encode network: %w", err)
	}
	p, err := jsonpatch.CreateMergePatch(a, b)
	if err != nil {
		return nil, fmt.Errorf("compare network: %w", err)
	}
	var patch, known map[string]any
	if err := json.Unmarshal(p, &patch); err != nil {
		return nil, fmt.Errorf("compare network: %w", err)
	}
	if err := json.Unmarshal(a, &known); err != nil {
		return nil, fmt.Errorf("compare network: %w", err)
	}
	keepInLists(patch, raw, known)
	patch["metadata"] = map[string]any{"resourceVersion": old.ResourceVersion, "uid": string(old.UID)}
	return json.Marshal(patch)
}

// keepInLists goes through the lists of a patch.
func keepInLists(patch, raw, known map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case map[string]any:
			r, _ := raw[k].(map[string]any)
			o, _ := known[k].(map[string]any)
			keepInLists(v, r, o)
		case []any:
			r, _ := raw[k].([]any)
			o, _ := known[k].([]any)
			for _, e := range v {
				keepInEntry(e, r, o)
			}
		}
	}
}

// keepInEntry finds the entry in the old list, which raw and known both are.
func keepInEntry(entry any, raw, known []any) {
	e, ok := entry.(map[string]any)
	if !ok || len(raw) != len(known) {
		return
	}
	for i := range known {
		r, _ := raw[i].(map[string]any)
		if o, ok := known[i].(map[string]any); ok && identity(o) == identity(e) {
			keep(e, r, o)
			return
		}
	}
}

// identity is what tells a list's entries apart: the ordinal in the roster, the
// type of a condition, the run of an ended operation.
func identity(e map[string]any) string {
	run, _ := e["run"].(map[string]any)
	return fmt.Sprint(e["ordinal"], e["type"], e["token"], run["uid"])
}

// keep copies what only raw has.
func keep(e, raw, known map[string]any) {
	for k, v := range raw {
		o, isKnown := known[k]
		n, isNew := e[k]
		if !isKnown && !isNew {
			e[k] = v
			continue
		}
		nm, _ := n.(map[string]any)
		om, _ := o.(map[string]any)
		if vm, ok := v.(map[string]any); ok && nm != nil && om != nil {
			keep(nm, vm, om)
		}
	}
}
