// Package config reads the YAML that LMCache users already have and turns it into the validated
// configuration of one kvferry node.
//
// A file has LMCache's keys at the top (pd_role, pd_peer_host, chunk_size, ...) and kvferry's own
// below extra_config.kvferry, a place that LMCache hands through untouched, so one file can serve
// both. [Parse] reads it; docs/configuration.md, generated from the same table that Parse uses, lists
// every key.
//
//	cfg, err := config.Parse("node.yaml", data, os.LookupEnv)
//
// Nothing is guessed and nothing is skipped in silence. A key that no LMCache has is refused, with
// the nearest known name. A key that LMCache has and that does not concern this transfer is accepted
// and ignored, by name. A key that asks for something this version cannot do is refused; at its off
// value it is accepted. A key that works otherwise than it says, because this build has no such driver or
// this role no use for it, is accepted with a note. All findings are reported at once, each with its line
// and column, as an [*Error]; notes are in the [Config].
//
// Units are converted once, here: durations become integer nanoseconds, percentages integer millionths or basis
// points, sizes bytes. Machines never see a float.
package config
