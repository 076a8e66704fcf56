package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// addUnknownKey reports an unknown key at the top level, with the key that was probably meant.
func (d *draft) addUnknownKey(file, name string, at *yaml.Node) {
	known, names := slices.Concat([]string{"extra_config"}, d.ignored), []string(nil)
	for _, k := range d.top {
		known = append(append(known, k.name), k.aliases...)
		names = append(names, k.name)
	}
	remedy := d.owner + " has no such key; remove it"
	if name == "kvferry" {
		remedy = "kvferry's own keys belong below extra_config: move it to extra_config.kvferry"
	} else if d.schema != &directorySchema && directorySchema.hasKey(true, name) {
		remedy = "this is a key of a directory's file; move it to the file for kvferry directory --config"
	} else if d.schema == &directorySchema && nodeSchema.hasKey(true, name) {
		remedy = "this is a key of a node's file; move it to that file"
	} else if findKey(d.own, name) != nil || d.isGroup(name) {
		remedy = "this is a key of kvferry's own; move it to " + ownPath(name)
	} else if near := likelyKey(name, known, names); near != "" {
		remedy = fmt.Sprintf("%s has no such key; did you mean %s?", d.owner, near)
	}
	d.addProblem(Problem{Code: UnknownKey, File: file, Line: at.Line, Column: at.Column, Field: shortenValue(name), Remedy: remedy})
}

// addUnknownOwnKey reports an unknown key below extra_config.kvferry, with the key that was probably meant.
func (d *draft) addUnknownOwnKey(file, path string, at *yaml.Node) {
	var known []string
	for _, k := range d.own {
		known = append(known, k.name)
	}
	remedy := "kvferry has no such key; docs/configuration.md lists them"
	if findKey(d.top, path) != nil {
		remedy = "this is one of LMCache's keys; move it to the top of the file"
	} else if near := d.nearestInGroup(path, known); near != "" {
		remedy = fmt.Sprintf("kvferry has no such key; did you mean %s?", near)
	} else if near := keyWithLeaf(path, known); near != "" {
		remedy = fmt.Sprintf("kvferry has no such key here; did you mean %s?", near)
	} else if near := likelyKey(path, known, known); near != "" {
		remedy = fmt.Sprintf("kvferry has no such key; did you mean %s?", near)
	}
	d.addProblem(Problem{Code: UnknownKey, File: file, Line: at.Line, Column: at.Column, Field: ownPath(shortenValue(path)),
		Remedy: remedy})
}

// nearestInGroup returns the key in the group of path that was probably meant. Example: layout.layers means
// layout.num_layers, although another group has a key that ends in layers. Keys outside of groups do not form a group.
func (d *draft) nearestInGroup(path string, known []string) string {
	at := strings.LastIndexByte(path, '.') + 1
	if at == 0 {
		return ""
	}
	var leaves []string
	for _, k := range known {
		if leaf, ok := strings.CutPrefix(k, path[:at]); ok {
			leaves = append(leaves, leaf)
		}
	}
	if near := likelyKey(path[at:], leaves, leaves); near != "" {
		return path[:at] + near
	}
	return ""
}

// likelyKey returns the key that was probably meant by name: the nearest of the known keys, regardless of case, or the
// only element of names that ends in an underscore and the given name, as pd_role ends in role.
func likelyKey(name string, known, names []string) string {
	name = strings.ToLower(name)
	if near := nearestName(name, known); near != "" {
		return near
	}
	end := ""
	for _, k := range names {
		if strings.HasSuffix(k, "_"+name) {
			if end != "" {
				return "" // More than one key may be meant.
			}
			end = k
		}
	}
	return end
}

// keyWithLeaf returns the key with the same last part as path, because the user may have put the key into the wrong
// group.
func keyWithLeaf(path string, known []string) string {
	leaf := path[strings.LastIndexByte(path, '.')+1:]
	for _, k := range known {
		if k[strings.LastIndexByte(k, '.')+1:] == leaf {
			return k
		}
	}
	return ""
}

// nearestName returns the candidate with the fewest edits from name, if the number of edits is small enough for a slip:
// at most a third of the length of the name. The first of several equal candidates wins.
func nearestName(name string, candidates []string) string {
	const nameLenMax = 64 // longer than any key; bounds the work that a file can cause
	if len(name) > nameLenMax {
		return ""
	}
	best, limit := "", len(name)/3
	for _, c := range candidates {
		if n := editDistance(name, c); n <= limit {
			best, limit = c, n-1
		}
	}
	return best
}

// editDistance returns the number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
func editDistance(a, b string) int {
	before, last, this := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		this[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			this[j+1] = min(replace, last[j+1]+1, this[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				this[j+1] = min(this[j+1], before[j-1]+1)
			}
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
