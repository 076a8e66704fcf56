package config

import (
	"slices"
	"strings"
)

// A key is one row of the table from which files are read, defaults are set and
// docs/configuration.md is written.
type key struct {
	name    string   // at the top of the file; for our own keys, below extra_config.kvferry
	aliases []string // older names that LMCache still reads
	kind    kind
	// def is the default as one would write it, read like any other value. It is "" for a key without a default, and for one
	// that sets a field of the machine's configuration whose default is the machine's (see standard).
	def string
	// follows: the default depends on other keys, as doc says.
	follows bool
	// role is who reads the key, and whether it must be given; for LMCache's keys only.
	role string
	doc  string // one sentence, Markdown, without a full stop
	// secret: no message shows its value.
	secret bool
	// idle is the note on a key that is read and has no effect; "" for the others.
	idle string
}

// standard returns the default as one would write it in a file; "" if the key has none.
func (k *key) standard() string {
	if k.def != "" || k.follows || k.kind.show == nil {
		return k.def
	}
	return k.kind.show(unsaid)
}

// unsaid is the draft of a file that says nothing.
var unsaid = newDraft(nil)

const ownPrefix = "extra_config.kvferry."

// ownPath returns the whole path of one of our own keys.
func ownPath(name string) string { return ownPrefix + name }

// A schema is the keys of one kind of file.
type schema struct {
	top      []key    // at the top, those whose values are read
	own      []key    // kvferry's, below extra_config.kvferry
	extra    []key    // below extra_config; their names say so
	others   []string // at the top, those that are somebody else's
	variable string   // what names of variables begin with that override the file
	whose    string   // whose keys those at the top are
}

// nodeSchema is that of a rank.
var nodeSchema = schema{
	top:    slices.Concat(lmcacheKeys, shareKeys, laterKeys),
	own:    slices.Concat(nodeKeys, layerwiseKeys, registerKeys, shareOwnKeys, npuKeys, nixlKeys, gatewayKeys),
	extra:  extraKeys,
	others: slices.Concat(ignoredKeys, strayKeys), variable: "LMCACHE_", whose: "LMCache",
}

// find returns a key of the schema by the name that it has in a draft's found.
func (s *schema) find(name string) *key {
	if k := find(s.top, name); k != nil {
		return k
	}
	if k := find(s.extra, name); k != nil {
		return k
	}
	return find(s.own, strings.TrimPrefix(name, ownPrefix))
}

// isGroup reports whether path is a mapping of our own keys, such as layout.
func (s *schema) isGroup(path string) bool {
	return slices.ContainsFunc(s.own, func(k key) bool { return strings.HasPrefix(k.name, path+".") })
}
