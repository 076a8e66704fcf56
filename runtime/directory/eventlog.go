package directory

import (
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
)

// events holds the log line of each event. Workers join and leave at level info; a line at level warn may need an
// action of the operator.
var events = map[directory.Event]struct {
	level  slog.Level
	text   string
	remedy string
}{
	directory.Joined:  {slog.LevelInfo, "a worker registered", ""},
	directory.Renewed: {slog.LevelInfo, "a worker registered again", ""},
	directory.Met:     {slog.LevelInfo, "a worker is known by its heartbeat", ""},
	directory.Left:    {slog.LevelInfo, "a worker deregistered", ""},
	directory.WentSilent: {slog.LevelWarn, "a worker was silent and is dropped",
		"check that it runs; if it does, have it send heartbeats more often (lmcache_worker_heartbeat_time), or raise " +
			"lmcache_worker_timeout"},
	directory.Parted: {slog.LevelWarn, "a worker has had no connection for long and is dropped",
		"check that it runs; have it send heartbeats (lmcache_worker_heartbeat_time), or set health_check_interval: -1"},
	directory.GaveWay: {slog.LevelWarn, "a worker without a connection is dropped, because the table is full",
		"if they are all yours, raise directory.workers or directory.instances"},
	directory.OrderLost: {slog.LevelInfo, "operations of a worker are missing, and it is asked for a full sync", ""},
	directory.SyncBegan: {slog.LevelInfo, "a full sync began", ""},
	directory.SyncTaken: {slog.LevelInfo, "a full sync is complete", ""},
	directory.SyncGivenUp: {slog.LevelWarn, "a full sync did not go on",
		"the worker is asked again; check whether it is overloaded"},
	directory.LeftOut: {slog.LevelWarn, "chunks of a worker are not recorded: the tables are full",
		"raise directory.chunks or directory.holders"},
	directory.Wanted: {slog.LevelInfo, "a report of another directory is missing and is requested again", ""},
	directory.LogDown: {slog.LevelWarn, "the log does not answer, and what other directories know may be missing",
		"check that the server at directory.log runs and can be reached"},
	directory.LogAnswers: {slog.LevelInfo, "the log answers again", ""},
	directory.LogShort: {slog.LevelWarn, "entries of the log were gone before they were read, and are asked for anew",
		"raise directory.log_bytes, unless the server was restarted or emptied"},
	directory.Faded: {slog.LevelInfo, "old reports of a worker with missing operations are dropped",
		"have it send heartbeats, so that it can be asked for a full sync"},
}

// observe logs an event of the machine, once in a while for each event and instance.
func (d *Directory) observe(o *effects.Observe) {
	e, known := events[directory.Event(o.ID)]
	if o.Fact != effects.FactDirectory || !known {
		return
	}
	attrs := []any{"instance", o.Why.Name, "worker", o.Count}
	if o.Why.Field != "" {
		attrs = append(attrs, "location", o.Why.Field)
	}
	if e.remedy != "" {
		attrs = append(attrs, "remedy", e.remedy)
	}
	d.lines.Write(e.level, e.text, o.Why.Name, attrs...)
}
