package plan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/sim/internal/replace"
)

// planBytesMax is the maximum size of a plan's text. The largest text that Expand draws has 20 kB.
const planBytesMax = 1 << 20

// Parse parses a plan in YAML. Fields that are left out have their value in [New]. Parse returns an error if the text
// has an unknown field or a plan that [Plan.Check] refuses.
func Parse(text []byte) (Plan, error) {
	p := New()
	p.Version = 0 // The text must contain the version.
	if len(text) > planBytesMax {
		return p, fmt.Errorf("sim: plan has %d bytes, at most %d: shrink it", len(text), planBytesMax)
	}
	if err := yaml.Load(text, &p, yaml.WithKnownFields()); err != nil {
		return p, fmt.Errorf("sim: plan: %w", explainYAML(text, err))
	}
	return p, p.Check()
}

// Read reads a plan from a file.
func Read(path string) (Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return Plan{}, fmt.Errorf("sim: plan: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, planBytesMax+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Plan{}, fmt.Errorf("sim: plan: %w", err)
	}
	p, err := Parse(text)
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Text returns the plan as YAML, without the scalars of sections that have their value in [New]. [Parse] returns the
// same plan.
func (p *Plan) Text() ([]byte, error) {
	var node, standard yaml.Node
	common := New()
	if err := errors.Join(node.Encode(p), standard.Encode(&common)); err != nil {
		return nil, fmt.Errorf("sim: plan: %w", err)
	}
	omitDefaults(&node, &standard)
	if p.System != "" && len(p.Jobs) == 0 {
		removeSection(&node, "jobs")
	}
	text, err := yaml.Dump(&node, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("sim: plan: %w", err)
	}
	return text, nil
}

// omitDefaults removes from the sections of a plan the scalars that equal the standard, which is the plan of New, and
// then sections that are empty. Top-level scalars and lists stay. Invariant: New has no list in a section, because any
// two lists would count as equal.
func omitDefaults(node, standard *yaml.Node) {
	remaining := node.Content[:0]
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, section := node.Content[i], node.Content[i+1]
		if base := findValue(standard, name.Value); section.Kind == yaml.MappingNode && base != nil {
			var changed []*yaml.Node
			for k := 0; k+1 < len(section.Content); k += 2 {
				if v := findValue(base, section.Content[k].Value); v == nil || v.Value != section.Content[k+1].Value {
					changed = append(changed, section.Content[k], section.Content[k+1])
				}
			}
			if section.Content = changed; len(changed) == 0 {
				continue
			}
		}
		remaining = append(remaining, name, section)
	}
	node.Content = remaining
}

// removeSection removes a section.
func removeSection(mapping *yaml.Node, name string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

func findValue(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// Write writes the plan to a file and creates the folder if necessary. Write replaces an existing file only if the file
// contains a plan.
func (p *Plan) Write(path string) error {
	text, err := p.Text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("sim: plan: %w", err)
	}
	if err := replace.File(path, "the plan", text, isPlan); err != nil {
		return fmt.Errorf("sim: plan: %w", err)
	}
	return nil
}

// isPlan recognizes a plan of any version by the fields that Text always writes.
func isPlan(text []byte) bool {
	var p struct {
		Version, Seed *uint64
		FaultsEnd     *string `yaml:"faults_end"`
	}
	return yaml.Load(text, &p) == nil && p.Version != nil && p.Seed != nil && p.FaultsEnd != nil
}

// MarshalText returns n0, n1 and so on, or world.
func (n Node) MarshalText() ([]byte, error) {
	if n < 0 {
		return []byte("world"), nil
	}
	return fmt.Appendf(nil, "n%d", n), nil
}

// UnmarshalText parses the output of MarshalText.
func (n *Node) UnmarshalText(text []byte) error {
	if string(text) == "world" {
		*n = Node(NoNode)
		return nil
	}
	v, ok := ParseNode(string(text))
	if !ok || v < 0 {
		return fmt.Errorf("node %q is invalid: write n0, n1 and so on, or world", text)
	}
	*n = Node(v)
	return nil
}

// MarshalYAML writes a job on a single line.
func (j Job) MarshalYAML() (any, error) {
	type plain Job
	return flowNode(plain(j))
}

// MarshalYAML writes a fault on a single line.
func (s ScheduledFault) MarshalYAML() (any, error) {
	type plain ScheduledFault
	return flowNode(plain(s))
}

// MarshalYAML writes a strike on a single line.
func (s Strike) MarshalYAML() (any, error) {
	type plain Strike
	return flowNode(plain(s))
}

func flowNode(v any) (any, error) {
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return nil, err
	}
	n.Style |= yaml.FlowStyle
	return &n, nil
}
