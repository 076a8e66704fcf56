package directory

// NoteKind is the kind of a note.
type NoteKind uint8

// The events.
const (
	WorkerJoined       NoteKind = iota + 1 // a worker registered
	WorkerRenewed                          // a known worker registered again: all records of the worker are dropped
	WorkerMet                              // a heartbeat arrived from an unknown worker
	WorkerLeft                             // a worker deregistered
	WorkerSilent                           // nothing was heard from a worker for too long
	OperationsLost                         // operations of a location are missing, or belong to an earlier incarnation
	SyncBegan                              // a full sync of a location began
	SyncCompleted                          // a full sync of a location was completed
	SyncGivenUp                            // a full sync made no progress
	ChunksLeftOut                          // chunks of a location are not recorded, because a limit was reached
	WorkerWanted                           // operations are missing of a worker that reports to another directory
	LogDown                                // the log that directories share does not reply
	LogUp                                  // the shared log replies again
	LogTruncated                           // entries of another directory are missing in the shared log: trimmed, or never appended
	WorkerDisconnected                     // a worker had no connection for too long, and reported nothing
	// WorkerDisplaced: a worker without a connection was dropped, because another worker needed the room.
	WorkerDisplaced
	RecordsFaded // records of a location from before a gap were dropped
	LogVersion   // entries in the shared log were written by a release whose entries this one cannot read
)

// A Note reports an event to operators. Its strings may be kept.
type Note struct {
	Kind     NoteKind
	Instance string
	Worker   uint32
	Location string // empty: the note concerns all locations
}

// maxNotes limits the notes that are kept until ClearNotes. Further notes are dropped; no decision depends on notes.
const maxNotes = 256

// PendingNotes returns the notes since ClearNotes was last called.
func (d *Directory) PendingNotes() []Note { return d.notes }

// ClearNotes removes all notes.
func (d *Directory) ClearNotes() { d.notes = d.notes[:0] }

func (d *Directory) addNote(e NoteKind, w *worker, location string) {
	if len(d.notes) < maxNotes {
		name := d.roster.instanceOf(w).name
		d.notes = append(d.notes, Note{Kind: e, Instance: name, Worker: w.rank, Location: location})
	}
}
