package directory

import (
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
)

// eventLines holds the log line of each event. Workers join and leave at level info; a line at level warn may need an
// action of the operator.
var eventLines = map[directory.NoteKind]struct {
	level  slog.Level
	text   string
	remedy string
}{
	directory.WorkerJoined:  {slog.LevelInfo, "a worker registered", ""},
	directory.WorkerRenewed: {slog.LevelInfo, "a worker registered again", ""},
	directory.WorkerMet:     {slog.LevelInfo, "a worker is known by its heartbeat", ""},
	directory.WorkerLeft:    {slog.LevelInfo, "a worker deregistered", ""},
	directory.WorkerSilent: {slog.LevelWarn, "a worker was silent and is dropped",
		"check that it runs; if it does, have it send heartbeats more often (lmcache_worker_heartbeat_time), or raise " +
			"lmcache_worker_timeout"},
	directory.WorkerDisconnected: {slog.LevelWarn, "a worker has had no connection for long and is dropped",
		"check that it runs; have it send heartbeats (lmcache_worker_heartbeat_time), or set health_check_interval: -1"},
	directory.WorkerDisplaced: {slog.LevelWarn, "a worker without a connection is dropped, because the table is full",
		"if all workers are yours, raise directory.workers or directory.instances"},
	directory.OperationsLost: {slog.LevelInfo, "operations of a worker are missing, and it is asked for a full sync", ""},
	directory.SyncBegan:      {slog.LevelInfo, "a full sync began", ""},
	directory.SyncCompleted:  {slog.LevelInfo, "a full sync is complete", ""},
	directory.SyncGivenUp: {slog.LevelWarn, "a full sync did not go on",
		"the worker is asked for another full sync; check whether it is overloaded"},
	directory.ChunksLeftOut: {slog.LevelWarn, "chunks of a worker are not recorded: the tables are full",
		"raise directory.chunks or directory.holders"},
	directory.WorkerWanted: {slog.LevelInfo, "a report of another directory is missing and is requested again", ""},
	directory.LogDown: {slog.LevelWarn, "the log does not answer, so reports of other directories may be missing",
		"check that the server at directory.log runs and can be reached"},
	directory.LogUp: {slog.LevelInfo, "the log answers again", ""},
	directory.LogTruncated: {slog.LevelWarn, "entries of another directory are missing in the log, and its reports are requested again",
		"if the log trims entries before they are read, raise directory.log_bytes; otherwise the other directory dropped " +
			"reports while the log was slow or down, or the server was restarted or emptied"},
	directory.LogVersion: {slog.LevelWarn, "the log has entries of directories of another release, which this one cannot read",
		"run one release of kvferry at one log, or give the directories of each release a log of their own (directory.log); " +
			"until then each knows only the workers that report to it"},
	directory.RecordsFaded: {slog.LevelInfo, "old reports of a worker with missing operations are dropped",
		"have it send heartbeats, so that it can be asked for a full sync"},
}

// logEvent logs an event of the machine, once in a while for each event and instance.
func (d *Directory) logEvent(o *effects.Observe) {
	e, known := eventLines[directory.NoteKind(o.ID)]
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
	d.lines.WriteLimited(e.level, e.text, o.Why.Name, attrs...)
}
