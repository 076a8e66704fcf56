package effects

// An Event is one thing that happened. Drivers own the structs and may reuse
// them after the step.
//
//sumtype:decl
type Event interface{ isEvent() }

// Tick says that the machine's deadline has passed. It may come late or without need.
type Tick struct{}

// Command is something the engine wants. It ends in exactly one Deliver, and in
// one Return if that Deliver said Held or memory of it came back before. The body's memory is borrowed for the step.
type Command struct {
	Ticket Ticket
	Body   CommandBody
}

// CommandBody is implemented by the command structs that each room defines.
type CommandBody interface{ IsCommand() }

// Received is a peer's bytes on a channel that this rank serves. Request is zero
// when no answer is possible. Conn is the client's connection, and Origin where it comes from.
type Received struct {
	Conn    Conn
	Origin  Origin
	Channel Channel
	Request Request
	Body    []byte
}

// Opened completes Open. With Code OK, Conn is usable: bytes may be queued on it
// although the peer may not be there.
type Opened struct {
	Corr Corr
	Conn Conn
	Code Code
}

// ConnLost says that the transport knows the connection to be gone. Drivers may
// be unable to notice: machines never depend on it. For a Conn that the machine
// opened, every Send that the driver had was completed before, one that crossed with
// it is not answered any more, and the machine still owes the Close.
type ConnLost struct{ Conn Conn }

// Replied completes a Send with the peer's answer.
type Replied struct {
	Corr Corr
	Body []byte
}

// Unanswered completes a Send that will never be answered: its Conn was closed or
// lost, or the transport refused the bytes. The peer may or may not have got it.
type Unanswered struct {
	Corr Corr
	Code Code
}

// SendDone completes Post: OK means handed to the transport, not received.
type SendDone struct {
	Corr Corr
	Code Code
}

// Imported completes Import. With Code OK, Link is usable until LinkLost or Drop.
type Imported struct {
	Corr Corr
	Code Code
	Link Link
}

// LinkLost says that the data plane's connection with a peer is gone (its process
// died, or the plane gave up). Every transfer that the driver had was completed before;
// one that crossed with it fails. Link is
// set where we imported the peer; the machine still owes the Drop. Peer names the
// peer's incarnation in both directions: where it imported us, Link is zero and
// none of its requests is being served any more on a fenced plane.
type LinkLost struct {
	Link Link
	Peer Incarnation
}

// TransferDone completes Transfer. Settled says that no access of this transfer
// can still change a page, nor deliver bytes read from now on as its own; if it is
// false, exactly one Settled follows. At is the instant read after the completion
// was observed. OK implies Settled and, on fenced planes, that the target's machine has
// confirmed the landing; or of a read that the local pages hold what the peer's held
// in the generations named, Length bytes of each, and that the grant stood all the while.
// Of a read that ended otherwise nothing is said of any page.
type TransferDone struct {
	Corr    Corr
	Code    Code
	Settled bool
	At      Time
}

// CopyDone completes Copy. OK says that each To holds what its From held, whole, and implies Settled:
// that nothing of it touches a page any more. If that is false, exactly one Settled follows. Of a copy
// that ended otherwise nothing is said of any To. At is the instant read after the completion was observed.
type CopyDone struct {
	Corr    Corr
	Code    Code
	Settled bool
	At      Time
}

// Settled follows a TransferDone or CopyDone that was not settled. Code is OK if the device
// reported that the transfer or copy in fact completed.
type Settled struct {
	Corr Corr
	Code Code
}

// Landed says, on fenced planes, that a peer's push under Grant has ended here and
// which pages were stored whole (Length bytes, visible to every reader). The plane
// closed the grant for exactly these pages before it said so: no further store
// under the grant can touch them. Complete says that all pages of the push are
// among them. Each Landed is answered by one Confirm.
type Landed struct {
	Landing  Landing
	Grant    GrantID
	Peer     Incarnation
	Pages    []Page
	Complete bool
}

// Scattered completes Scatter: the engine's device code has read the pages, or gave up on them,
// and touches neither them nor the memory that it stored them to any more.
type Scattered struct {
	Corr Corr
	Code Code
}

// Revoked completes Revoke: nothing can touch the grant's pages any more. Pages
// that a Landed of the same grant reported earlier are not affected.
type Revoked struct{ Grant GrantID }

// Dropped completes Drop: the peer's access through the link is gone.
type Dropped struct{ Link Link }

func (*Tick) isEvent()         {}
func (*Command) isEvent()      {}
func (*Received) isEvent()     {}
func (*Opened) isEvent()       {}
func (*ConnLost) isEvent()     {}
func (*Replied) isEvent()      {}
func (*Unanswered) isEvent()   {}
func (*SendDone) isEvent()     {}
func (*Imported) isEvent()     {}
func (*LinkLost) isEvent()     {}
func (*TransferDone) isEvent() {}
func (*CopyDone) isEvent()     {}
func (*Settled) isEvent()      {}
func (*Landed) isEvent()       {}
func (*Scattered) isEvent()    {}
func (*Revoked) isEvent()      {}
func (*Dropped) isEvent()      {}
