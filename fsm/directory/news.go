package directory

// Event is what a note tells of.
type Event uint8

// The events.
const (
	Joined      Event = iota + 1 // a worker registered
	Renewed                      // one registered that was known: what it had is forgotten
	Met                          // the heartbeat of one came that was not known
	Left                         // one deregistered
	WentSilent                   // nothing was heard of one for too long
	OrderLost                    // operations of a location are missing, or are of an earlier incarnation
	SyncBegan                    // of a location
	SyncTaken                    // all that it has was told
	SyncGivenUp                  // it did not go on
	LeftOut                      // chunks of a location are not remembered: there is no room
	Wanted                       // something is missing of one that another directory hears
	LogDown                      // the log that directories share does not answer
	LogAnswers                   // it does again
	LogShort                     // entries of it were gone before they were read
	Parted                       // a worker had no connection for too long, and said nothing
	GaveWay                      // one without a connection is forgotten, because others need the room
	Faded                        // what a location told before operations of it were missing is not believed any more
)

// A Note is for people. Its texts can be kept.
type Note struct {
	Event    Event
	Instance string
	Worker   uint32
	Location string // empty: it is about all of them
}

// notesMost are kept until somebody hears them. What is beyond is left out, and nothing is decided by any.
const notesMost = 256

// News are the notes since HeardNews.
func (d *Directory) News() []Note { return d.notes }

// HeardNews empties them.
func (d *Directory) HeardNews() { d.notes = d.notes[:0] }

func (d *Directory) note(e Event, w *worker, location string) {
	if len(d.notes) < notesMost {
		name := d.known.of(w).name
		d.notes = append(d.notes, Note{Event: e, Instance: name, Worker: w.rank, Location: location})
	}
}
