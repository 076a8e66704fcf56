// Package valkey keeps the log that directories share in a stream of a Valkey server, or of a Redis server from 6.2 on:
// it carries out what a machine sends on [effects.ChannelLog], beside a transport for all other channels.
//
// An entry is the field "e" of a stream's entry, and its position that one's id. The stream is cut about where the
// request says. Nothing is asked again by itself, so an entry is put there at most once for each Send. A
// server that does not answer holds up nobody: the machine ends its question by a Close.
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

// Config says where the log is.
type Config struct {
	Stream         string        // its key
	User, Password string        // empty: none
	TLS            *tls.Config   // see Encrypted; nil: nothing is encrypted
	Dial           time.Duration // to connect; 0: 2 s
	Stalled        time.Duration // after which a connection that says nothing is given up; 0: 5 s
	Entries        uint32        // the most that one answer holds; 0: 4096
}

// server is a connection to a server, which is made when it is needed. One goroutine has it.
type server struct {
	config Config
	at     string
	conn   redis.Conn // nil: there is none
	last   sharedlog.Position
	reads  uint
}

// connect makes the connection, if there is none that works. It goes on when nobody waits any more, so that it is told
// why it fails: for the time to connect and twice the time to be silent at most.
func (s *server) connect(life context.Context) error {
	if s.conn != nil && s.conn.Err() == nil {
		return nil
	}
	s.close()
	dial, stalled := cmp.Or(s.config.Dial, 2*time.Second), cmp.Or(s.config.Stalled, 5*time.Second)
	var err error
	s.conn, err = redis.DialContext(life, "tcp", s.at, redis.DialUsername(s.config.User),
		redis.DialPassword(s.config.Password), redis.DialClientName("kvferry-directory"),
		redis.DialContextFunc(dialer(dial, s.config.TLS)), redis.DialReadTimeout(stalled),
		redis.DialWriteTimeout(stalled))
	if err != nil {
		s.conn = nil // Otherwise it may be an interface that holds a nil pointer.
	}
	return err
}

func (s *server) close() {
	if s.conn != nil {
		_ = s.conn.Close() // What it could say of its end helps nobody.
		s.conn = nil
	}
}

// carryOut does what a question wants, for as long as ctx goes on.
func (s *server) carryOut(life, ctx context.Context, body []byte) ([]byte, error) {
	var r sharedlog.Request
	if err := r.Decode(body); err != nil {
		return nil, err
	}
	err := s.connect(life)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var a sharedlog.Answer
	if r.Entry != nil {
		a, err = s.add(ctx, &r)
	} else {
		a, err = s.read(ctx, &r)
	}
	if err != nil {
		return nil, err
	}
	return a.Append(nil), nil
}

func (s *server) add(ctx context.Context, r *sharedlog.Request) (a sharedlog.Answer, err error) {
	keep := []any{"MAXLEN", "~", r.Keep}
	if r.Before != (sharedlog.Position{}) {
		keep = []any{"MINID", "~", name(r.Before)}
	}
	args := append(append([]any{s.config.Stream}, keep...), "*", "e", r.Entry)
	id, err := redis.String(redis.DoContext(s.conn, ctx, "XADD", args...))
	if err == nil {
		a.Last, err = position(id)
	}
	return a, err
}

// looksEvery is how many reads may pass until one looks where the log really ends: that it begins anew shows there
// alone.
const looksEvery = 32

func (s *server) read(ctx context.Context, r *sharedlog.Request) (a sharedlog.Answer, err error) {
	start := "-"
	if r.After != (sharedlog.Position{}) {
		start = "(" + name(r.After)
	}
	most := min(r.Most, cmp.Or(s.config.Entries, 4096))
	a.Entries, err = entries(redis.DoContext(s.conn, ctx, "XRANGE", s.config.Stream, start, "+", "COUNT", most))
	if err != nil {
		return a, err
	}
	if n := len(a.Entries); n > 0 {
		s.last = a.Entries[n-1].At
	}
	if s.reads%looksEvery == 0 || len(a.Entries) == int(most) {
		end, err := entries(redis.DoContext(s.conn, ctx, "XREVRANGE", s.config.Stream, "+", "-", "COUNT", 1))
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

// entries are those of an answer. A stream that somebody else writes to may have other fields beside ours.
func entries(reply any, err error) (all []sharedlog.Stored, _ error) {
	found, err := redis.Values(reply, err)
	for _, each := range found {
		var id string
		var fields []string
		pair, err := redis.Values(each, nil)
		if err == nil {
			_, err = redis.Scan(pair, &id, &fields)
		}
		if err != nil {
			return nil, fmt.Errorf("an entry is no entry of a stream: %w", err)
		}
		at, err := position(id)
		if err != nil {
			return nil, err
		}
		entry := []byte{}
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "e" {
				entry = []byte(fields[i+1])
			}
		}
		all = append(all, sharedlog.Stored{At: at, Entry: entry})
	}
	return all, err
}

// position is that of an id.
func position(id string) (p sharedlog.Position, err error) {
	major, minor, ok := strings.Cut(id, "-")
	p.Major, err = strconv.ParseUint(major, 10, 64)
	if err == nil {
		p.Minor, err = strconv.ParseUint(minor, 10, 64)
	}
	if err != nil || !ok {
		return p, fmt.Errorf("the id of an entry is %q: give the key of a stream", id)
	}
	return p, nil
}

func name(p sharedlog.Position) string {
	return strconv.FormatUint(p.Major, 10) + "-" + strconv.FormatUint(p.Minor, 10)
}

// codeOf is how a machine is told why there is no answer.
func codeOf(err error) effects.Code {
	var says redis.Error
	switch {
	case errors.Is(err, context.Canceled):
		return effects.Closed
	case errors.As(err, &says), errors.Is(err, sharedlog.ErrForm):
		return effects.Refused
	}
	return effects.PeerLost
}

// remedy says what to do about it.
func remedy(err error, at string) []any {
	return []any{"log", at, "err", err, "remedy", "look whether a Valkey, or Redis from 6.2 on, runs there, speaks TLS " +
		"if directory.log_tls says so, takes directory.log_password, and has nothing but a stream at directory.log_stream"}
}
