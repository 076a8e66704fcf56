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
const agreeMax = 5 * time.Minute

// logLineFormat is the line of a directory's configuration that names the log.
const logText = "    directory: {log: '%s:%d'}\n"

// startLogServer starts the server of the log and returns the line for the directories' configurations. If no server is
// installed, the line is empty and logName says why.
func (t *town) startLog(ctx context.Context) (line string, err error) {
	path, name, err := server.FindProgram()
	if err != nil {
		t.logBy = fmt.Sprintf("none, so no log is killed: %v", err)
		return "", nil
	}
	ports, err := t.reserve(1)
	if err != nil {
		return "", err
	}
	t.logBy, t.shared = name, &seat{program: program{
		name: "log", path: path, startedAs: name, log: t.log, says: "eady to accept connections",
		args: []string{"--port", fmt.Sprint(ports[0]), "--bind", host, "--save", "", "--appendonly", "no", "--dir", t.dir,
			"--daemonize", "no", "--logfile", ""},
	}}
	return fmt.Sprintf(logText, host, ports[0]), t.shared.take(ctx)
}

// killLogServer kills the server together with its data and starts it again. Meanwhile the directories must answer with
// the content that they had. After the restart, they must learn of the chunks that were stored during the outage.
func (s *sharer) killLog(ctx context.Context) {
	if s.town.shared == nil {
		return
	}
	begin := time.Now()
	before, meanwhile := freshKeys(1000, batchChunks/2), freshKeys(1001, batchChunks/2)
	err := s.spread(ctx, before)
	if err == nil {
		var forgot error
		err = s.town.shared.crash(ctx, func() { forgot = s.withoutLog(before, meanwhile) })
		if err = errors.Join(err, forgot); err == nil {
			err = s.spread(ctx, meanwhile)
		}
	}
	s.tally.crashed("log", time.Since(begin), err)
}

// storeAndAwait makes the first instance store chunks, and waits until a lookup by the second instance, which queries a
// different directory, finds the chunks. The chunks are stored again before each lookup, because the cache may have
// evicted them.
func (s *sharer) spread(ctx context.Context, keys []string) error {
	for until := time.Now().Add(agreeMax); ; {
		s.town.seats[0].now().call(agent.Request{Op: "store", Keys: keys})
		r := s.town.seats[1].now().call(agent.Request{Op: "lookup", Keys: keys})
		switch {
		case r.Elsewhere+r.Hits >= len(keys):
			return nil
		case time.Now().After(until):
			return fmt.Errorf("after %v a directory knows by the log %d of %d chunks that an instance told another one: %s",
				agreeMax, r.Elsewhere, len(keys), r.Error)
		case !pause(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}

// useWithoutLog makes the instances store, look up and bring chunks while the log's server is down. It fails if the
// second instance's directory has forgotten chunks that were stored before the outage.
func (s *sharer) withoutLog(before, meanwhile []string) error {
	first, second := s.town.seats[0].now(), s.town.seats[1].now()
	r := second.call(agent.Request{Op: "lookup", Keys: before})
	first.call(agent.Request{Op: "store", Keys: meanwhile})
	for _, keys := range [][]string{before, meanwhile} {
		got := second.call(agent.Request{Op: "bring", Request: "log", Keys: keys, Fetch: s.options.Mode == P2PDelay,
			WaitMS: int(bringWait.Milliseconds())})
		s.tally.verified(&got)
		s.tally.alone(&got)
	}
	if r.Elsewhere+r.Hits < len(before) {
		return fmt.Errorf("when the log was killed a directory knew %d of the %d chunks that it knew before: %s", r.Elsewhere,
			len(before), r.Error)
	}
	return nil
}

// awaitAgreement waits until all directories that share a log know every instance and the same number of chunks. It
// fails after agreementMax.
func (t *town) agree(ctx context.Context) error {
	if t.shared == nil {
		return nil
	}
	for until := time.Now().Add(agreeMax); ; {
		same := true
		var all []directoryLine
		for _, d := range t.directories {
			all = append(all, d.knowing())
			same = same && all[len(all)-1] == all[0] && all[0].Workers == instances
		}
		switch {
		case same:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%v after the last request directories that share a log know %+v, want %d workers and the same "+
				"chunks", agreeMax, all, instances)
		case !pause(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}
