// Package config reads the YAML configuration that LMCache users already have, and turns the file into the validated
// configuration of a kvferry node ([Parse]) or of a directory ([ParseDirectory]). [Compare] checks whether two nodes
// can work together.
//
// A file has LMCache's keys at the top level (pd_role, pd_peer_host, chunk_size, ...) and kvferry's own keys below
// extra_config.kvferry. LMCache passes extra_config through unread, so that the same file can serve both programs.
// docs/configuration.md lists every key and is generated from the same table that Parse uses.
//
//	cfg, err := config.Parse("node.yaml", data, os.LookupEnv)
//
// A caller may rely on two rules: Parse does not guess, and does not skip a key silently. Parse refuses a key that no
// LMCache release has, and names the nearest known key. Parse accepts and ignores a key that LMCache has and that does
// not concern this transfer; these keys are listed by name. Parse refuses a key that requests a feature that this
// version does not have, unless the key is set to the off value. Parse accepts a key that works differently here,
// because this build lacks the driver or the node's role does not use the key, and adds a note. All problems are
// reported together as an [*Error], each with line and column. The notes are in the [Config].
//
// Example: a file has pd_role: sendr in line 3 and no pd_peer_host. Parse returns an Error with two problems. The first
// is rendered as "node.yaml:3:10: pd_role: "sendr": use sender or receiver", and the second reports the missing key.
//
// Units are converted once, in this package: durations become integer nanoseconds, percentages become integer
// millionths or basis points, and sizes become bytes. State machines never receive a float.
package config
