package directory

// Event is the kind of a note.
type Event uint8

// The events.
const (
	Joined      Event = iota + 1 // a worker registered
	Renewed                      // a known worker registered again: all records of the worker are dropped
	Met                          // a heartbeat arrived from an unknown worker
	Left                         // a worker deregistered
	WentSilent                   // nothing was heard from a worker for too long
	OrderLost                    // operations of a location are missing, or belong to an earlier incarnation
	SyncBegan                    // a full sync of a location began
	SyncTaken                    // a full sync of a location was completed
	SyncGivenUp                  // a full sync made no progress
	LeftOut                      // chunks of a location are not recorded, because a limit was reached
	Wanted                       // operations are missing of a worker that reports to another directory
	LogDown                      // the log that directories share does not reply
	LogAnswers                   // the shared log replies again
	LogShort                     // entries of the shared log were deleted before this directory read the entries
	Parted                       // a worker had no connection for too long, and reported nothing
	// GaveWay: a worker without a connection was dropped, because another worker needed the room.
	GaveWay
	Faded // records of a location from before a gap were dropped
)

// A Note reports an event to operators. Its strings may be kept.
type Note struct {
	Event    Event
	Instance string
	Worker   uint32
	Location string // empty: the note concerns all locations
}

// notesMost limits the notes that are kept until HeardNews. Further notes are dropped; no decision depends on notes.
const notesMost = 256

// News returns the notes since HeardNews was last called.
func (d *Directory) News() []Note { return d.notes }

// HeardNews removes all notes.
func (d *Directory) HeardNews() { d.notes = d.notes[:0] }

func (d *Directory) note(e Event, w *worker, location string) {
	if len(d.notes) < notesMost {
		name := d.known.of(w).name
		d.notes = append(d.notes, Note{Event: e, Instance: name, Worker: w.rank, Location: location})
	}
}
