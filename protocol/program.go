package protocol

import "strings"

// tagPrefixes maps prefixes of tags to the programs of LMCache's family that write tags with these prefixes. This
// package does not decode the messages of these programs.
var tagPrefixes = []struct{ prefix, speaker string }{
	{"Nixl", "lmcache, transfer_channel nixl"},
	{"Mooncake", "lmcache, transfer_channel mooncake"},
	{"Hccl", "lmcache-ascend, transfer_channel hccl"},
	{"PySocket", "lmcache, transfer_channel py_socket"},
	{"CancelNotif", "lmcache, asynchronous pd backend"},
}

// ProgramOf describes in a few words the program that writes messages like b, if b is not a message of FamilyPD:
// another program of LMCache's family, a program with another transfer channel, or an engine or agent of kvferry. The
// result is empty for messages of FamilyPD and of unknown programs. The text never contains bytes of b.
func ProgramOf(b []byte, lim *Limits) string {
	r := newReader(b, lim)
	for n := r.readMapHeader(); n > 0 && r.ok(); n-- {
		if name := r.readName(); string(name) != tagField {
			r.skipValue(2)
			continue
		}
		if name := r.readText(); r.ok() {
			return programOfTag(name)
		}
	}
	return ""
}

func programOfTag(name []byte) string {
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
	for _, k := range tagPrefixes {
		if strings.HasPrefix(string(name), k.prefix) {
			return k.speaker
		}
	}
	return ""
}
