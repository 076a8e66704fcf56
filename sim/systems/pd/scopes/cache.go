package scopes

import "github.com/kvferry/kvferry/sim/explore"

// cacheScopes returns the scopes of receivers that keep chunks which no request expects any more, while there are free
// pages.
func cacheScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	same := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{1}}}
	apart := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{2}}}
	more := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1, 2}}}
	all := []explore.Scope{
		{Name: "cache", Description: "two requests use the same chunk: the second may find it in the cache", Jobs: same},
		{Name: "cache-late", Description: "one chunk is pushed, any deadline may expire first: its claim may lapse before the engine gets it",
			Jobs: one, Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "cache-pressure", Description: "two senders, room for one chunk: a chunk that was read is evicted for the next",
			Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "cache-prefix", Description: "two senders, room for two chunks: a chunk of a claimed prefix is not evicted",
			Senders: 2, ReceiverPages: 2, Jobs: more},
		{Name: "cache-drain", Description: "one chunk is pushed, and the receiver drains at any point", Jobs: one, Faults: 1, Drain: true},
		{Name: "leased-cache-pressure", Description: "as cache-pressure, over a leased plane", Leased: true, Senders: 2,
			ReceiverPages: 1, Jobs: apart},
	}
	for i := range all {
		all[i].Cache = true
	}
	return all
}
