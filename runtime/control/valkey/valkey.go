// Package valkey keeps the log that directories share in a stream of a Valkey server, or of a Redis server from 6.2 on:
// it carries out what a machine sends on [effects.ChannelLog], beside a transport for all other channels.
//
// An entry is the field "e" of a stream's entry, and its position that one's id. The stream is cut to about as many
// entries as the request says. Nothing is asked again by itself, so an entry is put there at most once for each Send. A
// server that does not answer holds up nobody: the machine ends its question by a Close.
package valkey

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

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

// server is one server and our connection to it, which is made when it is needed.
type server struct {
	config Config
	at     string
	dial   sync.Mutex
	client valkey.Client // nil: there is none
	ended  bool
}

// connect gives the connection. Only one at a time is tried.
func (s *server) connect(ctx context.Context) (valkey.Client, error) {
	s.dial.Lock()
	defer s.dial.Unlock()
	if s.ended {
		return nil, context.Canceled
	}
	if s.client != nil || ctx.Err() != nil {
		return s.client, ctx.Err()
	}
	var err error
	s.client, err = valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{s.at}, Username: s.config.User, Password: s.config.Password, ClientName: "kvferry-directory",
		ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10, RingScaleEachConn: 4,
		TLSConfig:        s.tls(),
		Dialer:           net.Dialer{Timeout: cmp.Or(s.config.Dial, 2*time.Second)},
		ConnWriteTimeout: cmp.Or(s.config.Stalled, 5*time.Second),
	})
	if err != nil {
		s.client = nil // Otherwise it is an interface that holds a nil pointer.
	}
	return s.client, err
}

// tls is for this server's name.
func (s *server) tls() *tls.Config {
	if s.config.TLS == nil {
		return nil
	}
	c := s.config.TLS.Clone()
	c.ServerName, _, _ = net.SplitHostPort(s.at)
	return c
}

func (s *server) end() {
	s.dial.Lock()
	defer s.dial.Unlock()
	if s.ended = true; s.client != nil {
		s.client.Close()
	}
}

// carryOut does what a question wants.
func (s *server) carryOut(ctx context.Context, body []byte, last *known) ([]byte, error) {
	var r sharedlog.Request
	if err := r.Decode(body); err != nil {
		return nil, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	var a sharedlog.Answer
	if r.Entry != nil {
		a, err = s.add(ctx, c, &r)
	} else {
		a, err = s.read(ctx, c, &r, last)
	}
	if err != nil {
		return nil, err
	}
	return a.Append(nil), nil
}

func (s *server) add(ctx context.Context, c valkey.Client, r *sharedlog.Request) (a sharedlog.Answer, err error) {
	id, err := c.Do(ctx, c.B().Xadd().Key(s.config.Stream).Maxlen().Almost().Threshold(strconv.FormatUint(uint64(r.Keep),
		10)).
		Id("*").FieldValue().FieldValue("e", valkey.BinaryString(r.Entry)).Build()).ToString()
	if err == nil {
		a.Last, err = position(id)
	}
	return a, err
}

// known is what reads on one connection of the machine's saw of the log's end.
type known struct {
	last  sharedlog.Position
	reads uint
}

// looksEvery is how many reads may pass until one looks where the log really ends: that it begins anew shows there
// alone.
const looksEvery = 32

func (s *server) read(ctx context.Context, c valkey.Client, r *sharedlog.Request, last *known) (a sharedlog.Answer,
	err error) {
	start := "-"
	if r.After != (sharedlog.Position{}) {
		start = "(" + name(r.After)
	}
	most := min(r.Most, cmp.Or(s.config.Entries, 4096))
	all, err := c.Do(ctx, c.B().Xrange().Key(s.config.Stream).Start(start).End("+").Count(int64(most)).Build()).AsXRange()
	if err != nil {
		return a, err
	}
	for _, x := range all {
		at, err := position(x.ID)
		if err != nil {
			return a, err
		}
		a.Entries = append(a.Entries, sharedlog.Stored{At: at, Entry: []byte(x.FieldValues["e"])})
		last.last = at
	}
	if last.reads%looksEvery == 0 || len(all) == int(most) {
		end, err := c.Do(ctx, c.B().Xrevrange().Key(s.config.Stream).End("+").Start("-").Count(1).Build()).AsXRange()
		if err != nil {
			return a, err
		}
		last.last = sharedlog.Position{}
		if len(end) > 0 {
			if last.last, err = position(end[0].ID); err != nil {
				return a, err
			}
		}
	}
	last.reads++
	a.Last = last.last
	return a, nil
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
	var says *valkey.ValkeyError
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
