//go:build libzmq

package main

import (
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
)

// libzmqAbsent is the reason that a build has no libzmq. It is nil, because this build has libzmq.
var libzmqAbsent error

// libzmqOpener returns the control transport over libzmq. The limits on peers' connections have no effect on this
// transport.
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
