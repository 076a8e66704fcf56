package config

import "slices"

// A key is one row of the table from which files are read, defaults are set and
// docs/configuration.md is written.
type key struct {
	name    string   // at the top of the file; for our own keys, below extra_config.kvferry
	aliases []string // older names that LMCache still reads
	kind    kind
	// def is the default as one would write it, read like any other value; "" is none.
	def string
	// role is who reads the key, and whether it must be given; for LMCache's keys only.
	role string
	doc  string // one sentence, Markdown, without a full stop
	// idle is the note on a key that is read and has no effect; "" for the others.
	idle string
}

const ownPrefix = "extra_config.kvferry."

// ownPath returns the whole path of one of our own keys.
func ownPath(name string) string { return ownPrefix + name }

// topKeys are all keys at the top of a file whose values are read.
var topKeys = slices.Concat(lmcacheKeys, laterKeys)

// ownKeys are all of kvferry's, below extra_config.kvferry.
var ownKeys = slices.Concat(nodeKeys, npuKeys)
