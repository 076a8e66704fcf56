// Package liar is a peer that lies, for tests: it stands between an honest initiator and an honest target of the tcp or
// the shm plane, or of the channel of the plane between NPUs, reads every frame and every page that they send each
// other, takes the files that come beside them, and deviates at one step, in one way. So it is a lying target to the
// one
// and a lying initiator to the other, at any step that the two can reach, without a protocol of its own that could be
// kinder.
//
//	for _, lie := range liar.All() { ... }
//
// What it was given to pass on it keeps account of: [Liar.Saw] says whether bytes went by that nobody was to send.
package liar
