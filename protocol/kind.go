package protocol

import "strings"

// kinds are the beginnings of tags that programs of LMCache's family write and that this package does not speak, and
// who writes them.
var kinds = []struct{ prefix, speaker string }{
	{"Nixl", "lmcache, transfer_channel nixl"},
	{"Mooncake", "lmcache, transfer_channel mooncake"},
	{"Hccl", "lmcache-ascend, transfer_channel hccl"},
	{"PySocket", "lmcache, transfer_channel py_socket"},
	{"P2P", "lmcache, sharing between peers"},
	{"BatchedLookup", "lmcache, sharing between peers"},
	{"AscendBatchedLookup", "lmcache-ascend, sharing between peers"},
	{"AscendQueryDonePort", "lmcache-ascend, sharing between peers"},
	{"CancelNotif", "lmcache, asynchronous pd backend"},
	{"CacheQuery", "lmcache, synchronous pd backend"},
	{"Register", "lmcache, a worker of its controller"},
	{"Heartbeat", "lmcache, a worker of its controller"},
	{"BatchedKVOperation", "lmcache, a worker of its controller"},
	{"FullSync", "lmcache, a worker of its controller"},
}

// Speaker says in a few words who writes messages like b, where that is another kind of program of LMCache's family
// than this package speaks to, or one with another transfer channel. It is empty for what nobody known writes, and for
// messages of this package. The words are ours, whatever b holds.
func Speaker(b []byte, lim *Limits) string {
	r := open(b, lim)
	for n := r.mapHeader(); n > 0 && r.ok(); n-- {
		if name := r.name(); string(name) != tagField {
			r.skip(2)
			continue
		}
		tag := string(r.text())
		if !r.ok() || parseTag([]byte(tag)) != TagNone {
			return ""
		}
		for _, k := range kinds {
			if strings.HasPrefix(tag, k.prefix) {
				return k.speaker
			}
		}
		return ""
	}
	return ""
}
