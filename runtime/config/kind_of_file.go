package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// IsDirectory reports whether a file is a directory's rather than a node's, by its keys: more of them are keys that
// only a directory has than keys that only a node has, or all of them are keys that both have. It reports false for a
// file without a known key, and for one that is not YAML.
//
// Example: a file with controller_monitor_ports alone is a directory's, and one with pd_role beside it a node's, which
// Parse then refuses with the name of the key that is out of place.
func IsDirectory(data []byte) bool {
	if len(data) > fileBytesMax {
		return false
	}
	root, problem := load("", data)
	if root == nil || problem != nil {
		return false
	}
	both, directory, node := 0, 0, 0
	eachKey(root, "", func(top bool, name string) {
		ofDirectory, ofNode := directorySchema.has(top, name), nodeSchema.has(top, name)
		switch {
		case ofDirectory && ofNode:
			both++
		case ofDirectory:
			directory++
		case ofNode:
			node++
		}
	})
	return directory > node || node == 0 && both > 0
}

// eachKey calls visit for each key at the top of a file, and for each of kvferry's own by its path, such as
// directory.workers.
func eachKey(m *yaml.Node, prefix string, visit func(top bool, name string)) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		name, value := m.Content[i].Value, m.Content[i+1]
		switch {
		case prefix == "" && name != "extra_config":
			visit(true, name)
		case prefix == "" || prefix == extraPrefix && name == "kvferry":
			if value.Kind == yaml.MappingNode {
				eachKey(value, prefix+name+".", visit)
			}
		case prefix == extraPrefix:
			visit(true, extraPrefix+name)
		default:
			visit(false, strings.TrimPrefix(prefix, ownPrefix)+name)
			if value.Kind == yaml.MappingNode {
				eachKey(value, prefix+name+".", visit)
			}
		}
	}
}

// has reports whether a file of this schema may have a key, at the top or among kvferry's own.
func (s *schema) has(top bool, name string) bool {
	if !top {
		return find(s.own, name) != nil
	}
	return find(s.top, name) != nil || find(s.extra, name) != nil || slices.Contains(s.others, name)
}
