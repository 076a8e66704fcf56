// Package liar is a hostile peer for tests. A [Liar] stands between an honest initiator and an honest target of a
// data plane: the tcp or the shm plane, or the channel of the planes over HCCL and libnixl. It reads every frame and
// every page that they send to each other, and the files that are passed beside frames, and deviates at one step, in
// one way. So it acts as a lying target towards one end and as a lying initiator towards the other, at any step that
// the two can reach. Because it has no protocol of its own, it cannot be kinder than the real one.
//
// A test runs one Liar for each deviation and checks that the honest ends keep their promises:
//
//	for _, lie := range liar.All() {
//		l, blob, err := liar.New(targetBlob, lie, secret)
//		// The initiator imports blob instead of targetBlob, and pushes or reads.
//		<-l.Lied()
//	}
//
// [Liar.Saw] reports whether bytes were sent through it that the initiator must never send.
package liar
