// Package liar is a hostile peer for tests. A [Liar] stands between an honest initiator and an honest target of a data
// plane: the tcp or the shm plane, or the channel of the planes over HCCL and libnixl. The liar reads every frame and
// every page that the two ends send, and the files that are passed beside frames, and deviates at a single step, in a
// single way. So the initiator sees a lying target, and the target sees a lying initiator, at any step that the two
// can reach. Because a liar has no protocol implementation of its own, the honest ends are tested against the real
// protocol.
//
// A test runs a Liar for each deviation and checks that the honest ends keep their promises:
//
//	for _, lie := range liar.TCPLies() {
//		l, blob, err := liar.New(targetBlob, lie, secret)
//		// The initiator imports blob instead of targetBlob, and pushes or reads.
//		<-l.LieDone()
//	}
//
// [Liar.SawSecret] reports whether the initiator has sent bytes that must never be sent.
package liar
