package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime/control/valkey/server"
)

// Directories share a log where a server for it is installed. Then each instance tells one directory what it has, and
// asks that one, so what it hears of others' comes by the log. Otherwise each tells all of them.

// agreeMax bounds the wait for what directories tell each other. Who was known by a directory that was killed is known
// by another one after half a minute, and what is missing is asked for ever more seldom, after 160 s at the latest.
const agreeMax = 5 * time.Minute

// logText is of a directory's configuration.
const logText = "    directory: {log: '%s:%d'}\n"

// startLog starts a server, if there is one, and gives the line for directories.
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

// killLog kills the server with all that it kept. What directories know by it they go on to answer with; what is stored
// meanwhile they learn when it is there again.
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

// spread has the first instance store chunks, and waits until the second one hears of that from another directory.
// Where they were given up before, they are stored again.
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

// withoutLog has instances go on while there is no log.
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

// agree waits until each directory that shares a log knows all instances, and as many chunks as the others.
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
