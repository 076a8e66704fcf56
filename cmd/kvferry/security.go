package main

import (
	"os"
	"os/signal"
	"syscall"
)

// reloadOnHangup calls reload for each SIGHUP until the returned function is called.
func reloadOnHangup(reload func()) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			reload()
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups) // No more signals are delivered after Stop.
		<-done
	}
}
