package demo

import (
	"context"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// killInstance kills the last instance while pages of its chunks are in transfer to readers, and starts the instance
// again. To catch such a moment, killInstance suspends the processes that would end the transfer: the readers, or in
// mode p2p-push the instance itself, which writes. If no attempt finds pages in transfer, the instance is killed
// without them. killInstance starts when strikesReady is closed.
func (s *sharingPlayer) killInstance(ctx context.Context) {
	select {
	case <-s.tally.strikesReady:
	case <-ctx.Done():
		return
	}
	at := s.cluster.slots[instances-1]
	owner, readers := at.currentProcess(), s.cluster.instanceProcesses()[:instances-1]
	frozen, observed := readers, []*process{owner}
	if s.options.Mode == P2PPush {
		frozen, observed = observed, frozen
	}
	count := func() (n int) {
		for _, p := range observed {
			if stats := s.fetchStats(p); stats != nil && s.options.Mode == P2PPush {
				n += stats.PagesGranted
			} else if stats != nil {
				n += stats.PagesLent
			}
		}
		return n
	}
	found := 0
	var readersDone <-chan struct{}
	for try := 0; try < 100 && found == 0 && ctx.Err() == nil; try++ {
		readersDone = s.startReaders(owner, readers, freshKeys(try, batchChunks/2))
		if found = awaitPages(count, readersDone); found > 0 {
			for _, p := range frozen {
				p.suspend()
			}
			found = count()
		}
		if found == 0 { // The transfer had ended before the processes were suspended.
			for _, p := range frozen {
				p.resume()
			}
			<-readersDone
		}
	}
	s.tally.recordUnderWay(found)
	begin := time.Now()
	err := at.restart(ctx, func() {
		for _, p := range readers {
			p.resume()
		}
	})
	s.tally.addCrash(owner.name, time.Since(begin), err)
	<-readersDone
}

// awaitPages calls count until it returns more than 0 pages, and returns that number. It returns 0 if the readers end
// first.
func awaitPages(count func() int, readersDone <-chan struct{}) int {
	for {
		if n := count(); n > 0 {
			return n
		}
		select {
		case <-readersDone:
			return 0
		default:
		}
	}
}

// startReaders makes the owner store chunks and the readers bring them from the owner. The returned channel is closed
// when all readers have ended.
func (s *sharingPlayer) startReaders(owner *process, readers []*process, keys []string) <-chan struct{} {
	owner.callAgent(agent.Request{Op: "store", Keys: keys})
	done := make(chan struct{})
	var reading sync.WaitGroup
	for _, p := range readers {
		reading.Go(func() {
			got := p.callAgent(agent.Request{Op: "bring", Peer: &s.cluster.peers[instances-1], Request: "killed", Keys: keys,
				Fetch: s.options.Mode == P2PDelay})
			s.tally.addVerified(&got)
		})
	}
	go func() {
		reading.Wait()
		close(done)
	}()
	return done
}

// killDirectory kills the first directory, starts it again, and waits until all instances have reported their chunks to
// the new incarnation.
func (s *sharingPlayer) killDirectory(ctx context.Context) {
	d := s.cluster.directories[0]
	name, begin := d.currentProcess().name, time.Now()
	err := d.restart(ctx, func() {})
	if err == nil {
		err = d.awaitWorkers(ctx, instances)
	}
	s.tally.addCrash(name, time.Since(begin), err)
}
