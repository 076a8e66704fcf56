//go:build libzmq

package main

import (
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
)

// libzmqAbsent is why this build has no libzmq: it has.
var libzmqAbsent error

// libzmqOpener returns the control transport over libzmq. The bounds of connections of peers have no effect there.
func libzmqOpener(cfg *config.Config) control.Opener {
	return libzmq.Config{
		MaxConns:     int(cfg.Bounds.Conns),
		MaxMessage:   cfg.Limits.MessageBytes,
		Reconnect:    time.Duration(cfg.Machine.BackoffMin),
		ReconnectMax: time.Duration(cfg.Machine.BackoffMax),

		Handshake:       cfg.Link.HandshakeTimeout,
		NameTimeout:     cfg.Link.NameTimeout,
		NameTTL:         cfg.Link.NameTTL,
		NameNegativeTTL: cfg.Link.NameNegativeTTL,
	}.Opener()
}
