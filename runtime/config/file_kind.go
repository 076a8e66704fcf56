package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// IsDirectory reports whether a file is for a directory rather than for a node, judging by the keys: more of the keys
// belong only to a directory than belong only to a node. The result is false for a file without keys of either kind,
// because a node may get all keys from environment variables, and for a file that is not YAML.
//
// Example: a file that has only controller_monitor_ports is for a directory. If the file also has pd_role, the file is
// for a node, and Parse refuses the file with the name of the misplaced key.
func IsDirectory(data []byte) bool {
	if len(data) > fileBytesMax {
		return false
	}
	root, problem := loadMapping("", data)
	if root == nil || problem != nil {
		return false
	}
	directory, node := 0, 0
	forEachKey(root, "", func(top bool, name string) {
		ofDirectory, ofNode := directorySchema.hasKey(top, name), nodeSchema.hasKey(top, name)
		switch {
		case ofDirectory && !ofNode:
			directory++
		case ofNode && !ofDirectory:
			node++
		}
	})
	return directory > node
}

// forEachKey calls visit for each key at the top level of a file, and for each of kvferry's own keys by path, for
// example directory.workers.
func forEachKey(m *yaml.Node, prefix string, visit func(top bool, name string)) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		name, value := m.Content[i].Value, m.Content[i+1]
		switch {
		case prefix == "" && name != "extra_config":
			visit(true, name)
		case prefix == "" || prefix == extraPrefix && name == "kvferry":
			if value.Kind == yaml.MappingNode {
				forEachKey(value, prefix+name+".", visit)
			}
		case prefix == extraPrefix:
			visit(true, extraPrefix+name)
		default:
			visit(false, strings.TrimPrefix(prefix, ownPrefix)+name)
			if value.Kind == yaml.MappingNode {
				forEachKey(value, prefix+name+".", visit)
			}
		}
	}
}

// hasKey reports whether a file of this schema may have the key, at the top level or among kvferry's own keys.
func (s *schema) hasKey(top bool, name string) bool {
	if !top {
		return findKey(s.own, name) != nil
	}
	return findKey(s.top, name) != nil || findKey(s.extra, name) != nil || slices.Contains(s.ignored, name)
}
