// Package valkey carries the log that replicated directories share, in a stream of a Valkey server, or of a Redis
// server from version 6.2 on. The package carries out the requests that a directory's machine sends on
// [effects.ChannelLog]; all further channels stay with the wrapped transport ([WithLog]).
//
// A log entry is an entry of the stream, with the field "e"; the position of the log entry is the id of the stream's.
// The stream is trimmed approximately to the length or position that a request names. Nothing is retried here, so an
// entry is added at most once for each Send. A server that does not answer blocks no unrelated request: the machine
// ends the request by a Close.
//
// Example: two directories share a log.
//
//	directory A                        Valkey                       directory B
//	XADD log MAXLEN ~ n * e entry ──►  1700000000000-0
//	                                   entry                   ◄──  XRANGE log (last + COUNT 4096
package valkey

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// Config says where the log is and how to reach the server.
type Config struct {
	Stream         string        // key of the stream
	User, Password string        // empty: none
	TLS            *tls.Config   // see TLSConfig; nil: no encryption
	Dial           time.Duration // timeout of one attempt to connect; 0: 2 s
	Stalled        time.Duration // time without a byte after which a connection is given up; 0: 5 s
	Entries        uint32        // largest number of entries in one reply; 0: 4096
}

// server is a connection to a Valkey server, made when a request needs a connection. A server belongs to a single
// goroutine.
type server struct {
	config Config
	at     string
	conn   redis.Conn // nil if there is no connection
	last   sharedlog.Position
	reads  uint
}

// ensureConnected makes the connection if none works. The call goes on even if the machine has given up the request
// (ctx of handleRequest), so that the log can say why connecting fails: at most for Config.Dial and twice
// Config.Stalled.
func (s *server) ensureConnected(transportCtx context.Context) error {
	if s.conn != nil && s.conn.Err() == nil {
		return nil
	}
	s.close()
	dial, stalled := cmp.Or(s.config.Dial, 2*time.Second), cmp.Or(s.config.Stalled, 5*time.Second)
	var err error
	s.conn, err = redis.DialContext(transportCtx, "tcp", s.at, redis.DialUsername(s.config.User),
		redis.DialPassword(s.config.Password), redis.DialClientName("kvferry-directory"),
		redis.DialContextFunc(newDialFunc(dial, s.config.TLS)), redis.DialReadTimeout(stalled),
		redis.DialWriteTimeout(stalled))
	if err != nil {
		s.conn = nil // redigo may return an interface that holds a nil pointer
	}
	return err
}

func (s *server) close() {
	if s.conn != nil {
		_ = s.conn.Close() // an error of a connection that is closed anyway is of no use
		s.conn = nil
	}
}

// handleRequest carries out a request, for as long as ctx is not canceled, and returns the encoded answer.
func (s *server) handleRequest(transportCtx, ctx context.Context, body []byte) ([]byte, error) {
	var r sharedlog.Request
	if err := r.Decode(body); err != nil {
		return nil, err
	}
	err := s.ensureConnected(transportCtx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var a sharedlog.Reply
	if r.Entry != nil {
		a, err = s.addEntry(ctx, &r)
	} else {
		a, err = s.readEntries(ctx, &r)
	}
	if err != nil {
		return nil, err
	}
	return a.Append(nil), nil
}

// addEntry appends an entry to the stream and trims the stream.
func (s *server) addEntry(ctx context.Context, r *sharedlog.Request) (a sharedlog.Reply, err error) {
	keep := []any{"MAXLEN", "~", r.Keep}
	if r.Before != (sharedlog.Position{}) {
		keep = []any{"MINID", "~", entryID(r.Before)}
	}
	args := append(append([]any{s.config.Stream}, keep...), "*", "e", r.Entry)
	id, err := redis.String(redis.DoContext(s.conn, ctx, "XADD", args...))
	if err == nil {
		a.Last, err = parsePosition(id)
	}
	return a, err
}

// tailCheckEvery is after how many reads the true end of the log is read. Only there a new beginning of the log is
// visible, for example after a restart of the server without data.
const tailCheckEvery = 32

// readEntries returns the entries after a position, and the position of the last entry of the log.
func (s *server) readEntries(ctx context.Context, r *sharedlog.Request) (a sharedlog.Reply, err error) {
	start := "-"
	if r.After != (sharedlog.Position{}) {
		start = "(" + entryID(r.After)
	}
	limit := min(r.Limit, cmp.Or(s.config.Entries, 4096))
	a.Entries, err = parseEntries(redis.DoContext(s.conn, ctx, "XRANGE", s.config.Stream, start, "+", "COUNT", limit))
	if err != nil {
		return a, err
	}
	if n := len(a.Entries); n > 0 {
		s.last = a.Entries[n-1].At
	}
	if s.reads%tailCheckEvery == 0 || len(a.Entries) == int(limit) {
		end, err := parseEntries(redis.DoContext(s.conn, ctx, "XREVRANGE", s.config.Stream, "+", "-", "COUNT", 1))
		if err != nil {
			return a, err
		}
		s.last = sharedlog.Position{}
		if len(end) > 0 {
			s.last = end[0].At
		}
	}
	s.reads++
	a.Last = s.last
	return a, nil
}

// parseEntries decodes the entries of a reply. An entry that another program added may have fields beside ours.
func parseEntries(reply any, err error) (all []sharedlog.StoredEntry, _ error) {
	found, err := redis.Values(reply, err)
	for _, item := range found {
		var id string
		var fields []string
		pair, err := redis.Values(item, nil)
		if err == nil {
			_, err = redis.Scan(pair, &id, &fields)
		}
		if err != nil {
			return nil, fmt.Errorf("the reply has a malformed stream entry: %w", err)
		}
		at, err := parsePosition(id)
		if err != nil {
			return nil, err
		}
		entry := []byte{}
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "e" {
				entry = []byte(fields[i+1])
			}
		}
		all = append(all, sharedlog.StoredEntry{At: at, Entry: entry})
	}
	return all, err
}

// parsePosition parses the id of a stream's entry.
func parsePosition(id string) (p sharedlog.Position, err error) {
	major, minor, ok := strings.Cut(id, "-")
	p.Major, err = strconv.ParseUint(major, 10, 64)
	if err == nil {
		p.Minor, err = strconv.ParseUint(minor, 10, 64)
	}
	if err != nil || !ok {
		return p, fmt.Errorf("a stream entry has the id %q: directory.log_stream must be the key of a stream", id)
	}
	return p, nil
}

// entryID returns the id of a stream's entry at a position.
func entryID(p sharedlog.Position) string {
	return strconv.FormatUint(p.Major, 10) + "-" + strconv.FormatUint(p.Minor, 10)
}

// codeOf returns the code by which the machine learns why a request failed.
func codeOf(err error) effects.Code {
	var serverError redis.Error
	switch {
	case errors.Is(err, context.Canceled):
		return effects.Closed
	case errors.As(err, &serverError), errors.Is(err, sharedlog.ErrFormat):
		return effects.Refused
	}
	return effects.PeerLost
}

// logAttrs returns the attributes of a log line about err: the server's address and what the operator should check.
func logAttrs(err error, at string) []any {
	return []any{"log", at, "err", err, "remedy", "check that a Valkey server, or Redis 6.2 or later, runs there, uses TLS " +
		"if directory.log_tls is set, accepts directory.log_password, and has a stream at directory.log_stream"}
}
