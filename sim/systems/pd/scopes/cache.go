package scopes

import "github.com/kvferry/kvferry/sim/explore"

// cache returns the scopes of receivers that keep chunks which no request expects any more, while there are free
// pages.
func cache() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	same := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{1}}}
	apart := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{2}}}
	more := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1, 2}}}
	all := []explore.Scope{
		{Name: "cache", About: "one chunk for two requests: the second one may find it", Jobs: same},
		{Name: "cache-late", About: "one chunk, everything may be late: what is kept for its request may lapse, and is found",
			Jobs: one, Timers: explore.TimersAny, Patience: 2},
		{Name: "cache-pressure", About: "two senders, room for one chunk: what was read makes room for the other",
			Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "cache-prefix", About: "two senders, room for two chunks, of which one may be here: it is not given up",
			Senders: 2, ReceiverPages: 2, Jobs: more},
		{Name: "cache-drain", About: "one chunk, its reader drains, at any moment", Jobs: one, Faults: 1, Drain: true},
		{Name: "leased-cache-pressure", About: "two senders on a leased plane, room for one chunk", Leased: true, Senders: 2,
			ReceiverPages: 1, Jobs: apart},
	}
	for i := range all {
		all[i].Cache = true
	}
	return all
}
