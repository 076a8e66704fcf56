// Package table reads and applies sim/mutants.yaml, the table of known defects.
//
// An entry of the table, which is called a mutant, puts one defect back into the code. For example:
//
//	# sim/mutants.yaml
//	- name: hold-dropped
//	  what: memory is returned to the engine while a cancelled write still reads it.
//	  property: [S19]
//	  like: 'rule M8; sglang#35049: the first error is taken for the end of all writes.'
//	  found: seed 13, 412 of 2000 fail
//	  edits:
//	    - in: fsm/rank/flows/push.(*Source).stop
//	      old: p.deliverHeld(e, code)
//	      new: p.deliver(e, code)
//
// The field in names a declaration by the folder of its package and its name: a function, a method with its receiver's
// type, or a type, constant or variable. A group of constants, variables or types is one declaration with many names.
// The field old is Go text that must occur exactly once in the declaration. Text is compared by tokens, so comments,
// white space and line breaks of the code may change without breaking a mutant. An edit with drop removes the whole
// declaration; an edit with add appends declarations to the file that has the declaration. The import paths of the
// field import are added to that file, and imports that the edit leaves unused are removed.
//
// The documentation of command mutants explains the other fields.
package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Mutant is one known defect.
type Mutant struct {
	Name       string   `yaml:"name"`
	What       string   `yaml:"what"`               // what the defect breaks
	Properties []string `yaml:"property,omitempty"` // properties that the report of a hunt must mention
	Like       string   `yaml:"like"`               // the mechanism that the defect removes, or a similar published defect
	Profile    string   `yaml:"profile,omitempty"`  // the simulator's profile in which the defect shows
	Scope      string   `yaml:"scope,omitempty"`    // the small world in which the defect shows, if seeds do not find it
	Plan       string   `yaml:"plan,omitempty"`     // "kept" if only the kept plan finds the defect
	Test       string   `yaml:"test,omitempty"`     // the Go test that fails, if the simulator does not run the code
	Found      *Found   `yaml:"found,omitempty"`    // how the last hunt found the defect; nil before the first hunt
	Edits      []Edit   `yaml:"edits"`
}

// An Edit changes one declaration, or the file that has it. Exactly one of Old, Drop and Add is set.
type Edit struct {
	In     string   `yaml:"in"`
	Old    string   `yaml:"old,omitempty"` // tokens of the declaration
	New    string   `yaml:"new,omitempty"` // replacement for Old
	Drop   bool     `yaml:"drop,omitempty"`
	Add    string   `yaml:"add,omitempty"`
	Import []string `yaml:"import,omitempty"`
}

// Found describes how a hunt found a mutant.
type Found struct {
	By      string // "seed", "choices", "plan" or "test"
	Seed    int    // the first seed that fails, counted from 0
	Failing int    // number of seeds that fail
	Of      int    // number of seeds that were run
	Choices int    // number of choices that lead to the failure in a small world
}

const (
	seedFormat    = "seed %d, %d of %d fail"
	choicesFormat = "%d choices"
)

func (f Found) String() string {
	switch f.By {
	case "seed":
		return fmt.Sprintf(seedFormat, f.Seed, f.Failing, f.Of)
	case "choices":
		return fmt.Sprintf(choicesFormat, f.Choices)
	}
	return f.By
}

// UnmarshalText reads what String writes.
func (f *Found) UnmarshalText(text []byte) error {
	*f = Found{By: string(text)}
	if f.By == "plan" || f.By == "test" {
		return nil
	}
	var seeds, choices Found
	if n, err := fmt.Sscanf(f.By, seedFormat, &seeds.Seed, &seeds.Failing, &seeds.Of); n == 3 && err == nil {
		*f, seeds.By = seeds, "seed"
		f.By = "seed"
		return nil
	}
	if n, err := fmt.Sscanf(f.By, choicesFormat, &choices.Choices); n == 1 && err == nil {
		*f = choices
		f.By = "choices"
		return nil
	}
	return fmt.Errorf("found is %q; want \"seed 3, 7 of 2000 fail\", \"7 choices\", \"plan\" or \"test\"", text)
}

var isName = regexp.MustCompile(`^[a-z0-9-]+$`)

// Read reads a table and returns an error if an entry is incomplete or not in order.
func Read(path string) ([]Mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Mutant
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i, m := range all {
		if err := m.checkEntry(); err != nil {
			return nil, fmt.Errorf("%s: mutant %q: %w", path, m.Name, err)
		}
		if i > 0 && all[i-1].Name >= m.Name {
			return nil, fmt.Errorf("%s: mutant %q stands after %q; sort the table by name", path, m.Name, all[i-1].Name)
		}
	}
	return all, nil
}

func (m *Mutant) checkEntry() error {
	switch {
	case !isName.MatchString(m.Name):
		return errors.New("a name consists of small letters, digits and hyphens")
	case m.What == "":
		return errors.New("what is empty; say what the defect breaks")
	case m.Like == "":
		return errors.New("like is empty; name the mechanism that the defect removes, or a published defect")
	case m.Plan != "" && m.Plan != "kept":
		return fmt.Errorf("plan is %q; there is only \"kept\"", m.Plan)
	case len(m.Edits) == 0:
		return errors.New("edits is empty")
	}
	for _, e := range m.Edits {
		kinds := 0
		for _, is := range []bool{e.Old != "", e.Drop, e.Add != ""} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			return fmt.Errorf("the edit of %s must have exactly one of old, drop and add", e.In)
		}
		if e.New != "" && e.Old == "" {
			return fmt.Errorf("the edit of %s has new without old", e.In)
		}
	}
	return nil
}

// RecordFound writes into the table how a mutant was found. It does not change any other byte of the file.
func RecordFound(path, name string, found Found) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const begin = "- name: "
	var out strings.Builder
	within, done := false, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			within = strings.TrimSpace(line[len(begin):]) == name
		}
		switch {
		case within && !done && strings.HasPrefix(line, "  found:"):
			line, done = "  found: "+found.String()+"\n", true
		case within && !done && strings.HasPrefix(line, "  edits:"):
			line, done = "  found: "+found.String()+"\n"+line, true
		}
		out.WriteString(line)
	}
	if !done {
		return fmt.Errorf("%s has no entry with the lines %q and \"  edits:\"", path, begin+name)
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}
