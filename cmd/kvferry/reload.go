package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/recording"
)

// A reloader reads the configuration of a process again on SIGHUP: C is *config.Config or *config.Directory. What can
// change in a running process is put into force, and the log says what cannot. A file with problems changes nothing.
type reloader[C interface{ Changes(next C) []config.Change }] struct {
	started C // with which the process was started
	current C // whose values are in force, of the keys that can be reloaded
	read    func() (C, error)
	apply   func(C)
	log     *slog.Logger
}

// reload reads the configuration once.
func (r *reloader[C]) reload() {
	next, err := r.read()
	if err != nil {
		r.log.Error("the configuration was not read again, and the former one stays in force", "err", err)
		return
	}
	r.apply(next)
	for _, c := range r.current.Changes(next) {
		if c.Reloads {
			r.log.Info("a changed value of the configuration is in force", "key", c.Key, "from", c.Old, "to", c.New)
		}
	}
	for _, c := range r.started.Changes(next) {
		if !c.Reloads {
			r.log.Warn("a changed value of the configuration needs a restart", "key", c.Key, "from", c.Old, "to", c.New)
		}
	}
	r.current = next
	r.log.Info("the configuration was read again")
}

// reloadOnHangup calls reload for each SIGHUP until the returned function is called.
func reloadOnHangup(reload func()) (stop func()) { return callOnSignal(syscall.SIGHUP, reload) }

// saveOnSignal saves the recording of a node's state machine on each SIGUSR1, until the returned function is called. A
// node without a recorder says so in its log.
func saveOnSignal(n interface {
	SaveRecording(why recording.Trigger) (name string, err error)
}, log *slog.Logger) (stop func()) {
	return callOnSignal(syscall.SIGUSR1, func() {
		if _, err := n.SaveRecording(recording.OnSignal); errors.Is(err, runtime.ErrNotRecorded) {
			log.Warn("SIGUSR1 saves the recording of the state machine, and there is none", "err", err)
		}
	})
}

// callOnSignal calls f for each of these signals, one call at a time, until the returned function is called.
func callOnSignal(of os.Signal, f func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, of)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range signals {
			f()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals) // No more signals are delivered after Stop.
		<-done
	}
}
