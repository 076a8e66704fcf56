package config

import (
	"slices"
	"strings"
)

// A key is a row of the table of keys. Parse reads files and sets defaults by this table, and docs/configuration.md is
// generated from the table.
type key struct {
	name    string   // the key at the top level of the file; for kvferry's own keys, below extra_config.kvferry
	aliases []string // older names that LMCache still reads
	kind    kind
	// def is the default as a user would write the value, and is parsed like a value from a file. def is empty for a
	// key without a default, and for a key that sets a field of the state machine's configuration, because the state
	// machine defines the default (see standard).
	def string
	// derived means that the default depends on further keys, as doc describes.
	derived bool
	// role names the roles that read the key, and says whether the key is required. Only LMCache's keys have a role.
	role string
	doc  string // one sentence, Markdown, without a full stop
	// secret means that messages never show the value.
	secret bool
	// noEffect is the note for a key that is read but has no effect; empty for keys with an effect.
	noEffect string
	// reloads means that a process puts a changed value into force on SIGHUP.
	reloads bool
}

// defaultText returns the default as a user would write the value in a file, or "" if the key has none.
func (k *key) defaultText() string {
	if k.def != "" || k.derived || k.kind.show == nil {
		return k.def
	}
	return k.kind.show(emptyDraft)
}

// emptyDraft is the draft of an empty file.
var emptyDraft = newDraft(nil)

const ownPrefix = "extra_config.kvferry."

// ownPath returns the full path of a key of kvferry's own.
func ownPath(name string) string { return ownPrefix + name }

// A schema is the set of keys of a kind of file.
type schema struct {
	top       []key    // keys at the top level whose values are read
	own       []key    // kvferry's own keys, below extra_config.kvferry
	extra     []key    // other keys below extra_config; their names include the path
	ignored   []string // keys at the top level that are accepted and ignored
	envPrefix string   // prefix of the environment variables that override the file
	owner     string   // the program that defines the keys at the top level, for messages
}

// nodeSchema is the schema of a node's file.
var nodeSchema = schema{
	top: slices.Concat(lmcacheKeys, shareKeys, unsupportedKeys),
	own: slices.Concat(nodeKeys, securityKeys, tenantKeys, layerwiseKeys, registerKeys, shareOwnKeys, npuKeys, nixlKeys, gatewayKeys,
		operatorKeys),
	extra:   extraKeys,
	ignored: slices.Concat(ignoredKeys, ignoredOtherKeys), envPrefix: "LMCACHE_", owner: "LMCache",
}

// findKey returns the key with the given name, as the name appears in a draft's found map.
func (s *schema) findKey(name string) *key {
	if k := findKey(s.top, name); k != nil {
		return k
	}
	if k := findKey(s.extra, name); k != nil {
		return k
	}
	return findKey(s.own, strings.TrimPrefix(name, ownPrefix))
}

// isGroup reports whether path is a mapping of kvferry's own keys, for example layout.
func (s *schema) isGroup(path string) bool {
	return slices.ContainsFunc(s.own, func(k key) bool { return strings.HasPrefix(k.name, path+".") })
}
