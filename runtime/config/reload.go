package config

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"
)

// A Change is a key whose value differs between two configurations of one process.
type Change struct {
	Key      string // with the path, such as extra_config.kvferry.log.level
	Old, New string // as in the file, or "" where the key is not given; secrets are masked
	Reloads  bool   // the new value can be put into force while the process runs
}

// Changes returns the keys of a node whose values next changes, in the order of their names.
func (c *Config) Changes(next *Config) []Change {
	all := listChanges(&nodeSchema, c.settings, next.settings)
	for i := range all {
		if all[i].Key == ownPrefix+"tenant_share_pct" { // The pages of tenants are counted from the start on, or never.
			all[i].Reloads = c.Machine.TenantSharePct < 100 && next.Machine.TenantSharePct < 100
		}
	}
	return all
}

// Changes returns the keys of a directory whose values next changes, in the order of their names.
func (c *Directory) Changes(next *Directory) []Change {
	return listChanges(&directorySchema, c.settings, next.settings)
}

func listChanges(s *schema, old, next map[string]setting) (all []Change) {
	names := maps.Clone(old)
	maps.Copy(names, next)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before, after := old[name].text(), next[name].text(); before != after {
			k := s.findKey(name)
			if k.secret {
				before, after = masked, masked
			}
			all = append(all, Change{Key: name, Old: shortenValue(before), New: shortenValue(after), Reloads: k.reloads})
		}
	}
	return all
}

// text returns the whole value as YAML in one form, and "" for a setting that is not given.
func (s setting) text() string {
	if s.node == nil {
		return ""
	}
	if s.node.Kind == yaml.ScalarNode {
		return s.node.Value
	}
	var value any
	if err := s.node.Decode(&value); err != nil {
		return renderValue(s.node)
	}
	text, err := yaml.Marshal(value) // Keys are sorted.
	if err != nil {
		return renderValue(s.node)
	}
	return string(text)
}
