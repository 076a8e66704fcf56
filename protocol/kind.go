package protocol

import "strings"

// kinds are the beginnings of tags that programs of LMCache's family write and that this package does not speak, and
// who writes them.
var kinds = []struct{ prefix, speaker string }{
	{"Nixl", "lmcache, transfer_channel nixl"},
	{"Mooncake", "lmcache, transfer_channel mooncake"},
	{"Hccl", "lmcache-ascend, transfer_channel hccl"},
	{"PySocket", "lmcache, transfer_channel py_socket"},
	{"CancelNotif", "lmcache, asynchronous pd backend"},
}

// Speaker says in a few words who writes messages like b, where that is another kind of program of LMCache's family
// than a node that does PD speaks to, or one with another transfer channel. It is empty for what nobody known writes,
// and for messages of FamilyPD. The words are ours, whatever b holds.
func Speaker(b []byte, lim *Limits) string {
	r := open(b, lim)
	for n := r.mapHeader(); n > 0 && r.ok(); n-- {
		if name := r.name(); string(name) != tagField {
			r.skip(2)
			continue
		}
		if name := r.text(); r.ok() {
			return speaker(name)
		}
	}
	return ""
}

func speaker(name []byte) string {
	switch tag := parseTag(name); {
	case tag.Family() == FamilyController:
		return "lmcache, a worker of its controller"
	case tag.Family() == FamilyP2P && strings.HasPrefix(tag.String(), "Ascend"):
		return "lmcache-ascend, sharing between peers"
	case tag.Family() == FamilyP2P:
		return "lmcache, sharing between peers"
	case tag.Family() == FamilyAgent:
		return "kvferry, an engine or the agent of its host"
	case tag != TagNone:
		return ""
	}
	for _, k := range kinds {
		if strings.HasPrefix(string(name), k.prefix) {
			return k.speaker
		}
	}
	return ""
}
