package main

import (
	"context"
	"log/slog"
	"net"
	"strconv"

	"github.com/kvferry/kvferry/runtime/buildinfo"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/operator"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An operatorFace is the HTTP interface for operators of a process, if the configuration has a port for it.
type operatorFace struct {
	address  string // empty: there is none
	security *config.Security
	log      *slog.Logger
	timer    *operator.Timer // nil if there is none
}

// newOperatorFace reads where the interface of a rank is to listen.
func newOperatorFace(c *config.Operator, s *config.Security, rank int, log *slog.Logger) (f operatorFace, err error) {
	if len(c.Ports) == 0 {
		return f, nil
	}
	at, ok := c.Endpoint(rank)
	if !ok {
		return f, usagef("operator.port has no port for rank %d; add a port", rank)
	}
	return operatorFace{net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), s, log, operator.NewTimer()}, nil
}

// serve opens the interface. The first result ends it; the second is its address, or nil if there is no interface.
func (f *operatorFace) serve(guard *secure.Guard, sources ...operator.Source) (stop func(), at net.Addr, err error) {
	if f.address == "" {
		return func() {}, nil, nil
	}
	s, err := operator.Serve(operator.Config{Address: f.address, Sources: sources, Guard: guard, AllowPlain: f.security.AllowOff,
		Version: buildinfo.Current().Version, Log: f.log})
	if err != nil {
		return nil, nil, err
	}
	return func() {
		if err := s.Close(); err != nil {
			f.log.LogAttrs(context.Background(), slog.LevelWarn, "closing the server for operators", slog.Any("err", err))
		}
	}, s.Addr(), nil
}
