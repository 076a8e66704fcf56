package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime/control/valkey/server"
)

// The directories share a log if a Valkey or Redis server is installed. In that case, each instance reports its chunks
// to a single directory and queries the same directory, so that all information about peers comes through the log.
// Without a server, each instance reports to all directories.

// agreementMax limits the wait until the directories have the same content. The workers of a killed directory become
// known to another directory within half a minute. A directory requests missing entries again with growing pauses, the
// longest of which is 160 s.
const agreementMax = 5 * time.Minute

// logLineFormat is the line of a directory's configuration that names the log.
const logLineFormat = "    directory: {log: '%s:%d'}\n"

// startLogServer starts the server of the log and returns the line for the directories' configurations. If no server is
// installed, the line is empty and logName says why.
func (t *sharingCluster) startLogServer(ctx context.Context) (line string, err error) {
	path, name, err := server.FindProgram()
	if err != nil {
		t.logName = fmt.Sprintf("none, so the log is not killed: %v", err)
		return "", nil
	}
	ports, err := t.reservePorts(1)
	if err != nil {
		return "", err
	}
	t.logName, t.logServer = name, &slot{program: program{
		name: "log", path: path, argv0: name, log: t.log, readyText: "eady to accept connections",
		args: []string{"--port", fmt.Sprint(ports[0]), "--bind", host, "--save", "", "--appendonly", "no", "--dir", t.dir,
			"--daemonize", "no", "--logfile", ""},
	}}
	return fmt.Sprintf(logLineFormat, host, ports[0]), t.logServer.startFirst(ctx)
}

// killLogServer kills the server together with its data and starts it again. Meanwhile the directories must answer with
// the content that they had. After the restart, they must learn of the chunks that were stored during the outage.
func (s *sharingPlayer) killLogServer(ctx context.Context) {
	if s.cluster.logServer == nil {
		return
	}
	begin := time.Now()
	storedBefore, storedMeanwhile := freshKeys(1000, batchChunks/2), freshKeys(1001, batchChunks/2)
	err := s.storeAndAwait(ctx, storedBefore)
	if err == nil {
		var outageErr error
		err = s.cluster.logServer.restart(ctx, func() { outageErr = s.useWithoutLog(storedBefore, storedMeanwhile) })
		if err = errors.Join(err, outageErr); err == nil {
			err = s.storeAndAwait(ctx, storedMeanwhile)
		}
	}
	s.tally.addCrash("log", time.Since(begin), err)
}

// storeAndAwait makes the first instance store chunks, and waits until a lookup by the second instance, which queries a
// different directory, finds the chunks. The chunks are stored again before each lookup, because the cache may have
// evicted them.
func (s *sharingPlayer) storeAndAwait(ctx context.Context, keys []string) error {
	for deadline := time.Now().Add(agreementMax); ; {
		s.cluster.slots[0].currentProcess().callAgent(agent.Request{Op: "store", Keys: keys})
		r := s.cluster.slots[1].currentProcess().callAgent(agent.Request{Op: "lookup", Keys: keys})
		switch {
		case r.Elsewhere+r.Hits >= len(keys):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("after %v, a directory has learned from the log only %d of %d chunks that another directory knows: %s",
				agreementMax, r.Elsewhere, len(keys), r.Error)
		case !sleepContext(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}

// useWithoutLog makes the instances store, look up and bring chunks while the log's server is down. It fails if the
// second instance's directory has forgotten chunks that were stored before the outage.
func (s *sharingPlayer) useWithoutLog(storedBefore, storedMeanwhile []string) error {
	first, second := s.cluster.slots[0].currentProcess(), s.cluster.slots[1].currentProcess()
	r := second.callAgent(agent.Request{Op: "lookup", Keys: storedBefore})
	first.callAgent(agent.Request{Op: "store", Keys: storedMeanwhile})
	for _, keys := range [][]string{storedBefore, storedMeanwhile} {
		got := second.callAgent(agent.Request{Op: "bring", Request: "log", Keys: keys, Fetch: s.options.Mode == P2PDelay,
			WaitMS: int(bringWait.Milliseconds())})
		s.tally.addVerified(&got)
		s.tally.addWithoutLog(&got)
	}
	if r.Elsewhere+r.Hits < len(storedBefore) {
		return fmt.Errorf("while the log was down, a directory knew only %d of the %d chunks that it knew before: %s", r.Elsewhere,
			len(storedBefore), r.Error)
	}
	return nil
}

// awaitAgreement waits until all directories that share a log know every instance and the same number of chunks. It
// fails after agreementMax.
func (t *sharingCluster) awaitAgreement(ctx context.Context) error {
	if t.logServer == nil {
		return nil
	}
	for deadline := time.Now().Add(agreementMax); ; {
		agreed := true
		var counts []directoryLine
		for _, d := range t.directories {
			counts = append(counts, d.currentCounts())
			agreed = agreed && counts[len(counts)-1] == counts[0] && counts[0].Workers == instances
		}
		switch {
		case agreed:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%v after the last request, the directories that share a log have %+v; want %d workers and equal "+
				"numbers of chunks", agreementMax, counts, instances)
		case !sleepContext(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}
