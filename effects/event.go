package effects

// An Event is something that happened. Drivers own the structs and may reuse them after the step.
//
//sumtype:decl
type Event interface{ isEvent() }

// A Completion is an event that completes the effect with a Corr.
type Completion interface {
	Event
	// CompletedEffect returns the Corr of the effect. If final is false, a Settled completes the same effect later.
	CompletedEffect() (c Corr, final bool)
}

// Tick says that the machine's deadline has passed. A Tick may arrive late, or without need.
type Tick struct{}

// Command is an operation that the engine requests. A command ends in exactly one Deliver, and in a Return if that
// Deliver said Held or if memory of the command came back before. The memory of the body is borrowed for the step.
type Command struct {
	Ticket Ticket
	Body   CommandBody
}

// CommandBody is implemented by the command structs that each package of state machines defines.
type CommandBody interface{ IsCommand() }

// Received is a message of a peer on a channel that this rank serves. Request is zero when no reply is possible. Conn
// is the client's connection, and Origin is what the client counts against in shares and quotas. Principal is the
// identity that the client proved, and Roles are the roles that the policy gives to that identity. If Principal is zero,
// nobody authenticates the client, and Roles has no meaning. Tenants are the tenants whose chunks the client may touch
// (nil: all), and Realm is the trust domain that the client proved; both have a meaning without a Principal, too.
type Received struct {
	Conn      Conn
	Origin    Origin
	Principal Principal
	Roles     Roles
	Tenants   *Tenants
	Realm     Realm
	Channel   Channel
	Request   Request
	Body      []byte
}

// LacksRole reports whether the client proved an identity to which the policy gives none of the given roles.
func (e *Received) LacksRole(oneOf Roles) bool { return e.Principal != 0 && !e.Roles.Has(oneOf) }

// Opened completes Open. With Code OK, Conn is usable: bytes may be queued on it although the peer may not be present.
type Opened struct {
	Corr Corr
	Conn Conn
	Code Code
}

// ConnLost says that the transport knows that the connection is gone. Drivers may be unable to notice a lost
// connection, so machines never depend on this event. For a Conn that the machine opened, every Send that the driver
// had was completed before ConnLost, a Send that crossed with ConnLost is not answered any more, and the machine still
// owes the Close.
type ConnLost struct{ Conn Conn }

// Replied completes a Send with the peer's reply. Principal is the identity that the server proved; zero if it proved
// none. Tenants and Realm say of the server what they say of the client in Received.
type Replied struct {
	Corr      Corr
	Principal Principal
	Tenants   *Tenants
	Realm     Realm
	Body      []byte
}

// Unanswered completes a Send that will never be answered: its Conn was closed or lost, or the transport refused the
// bytes. The peer may or may not have received the request.
type Unanswered struct {
	Corr Corr
	Code Code
}

// SendDone completes Post: OK means that the message was handed to the transport, not that the peer received it.
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

// LinkLost says that the data plane's connection with a peer is gone, because the peer's process died or the plane gave
// up. Every transfer that the driver had was completed before LinkLost; a transfer that crossed with LinkLost fails.
// Link is set where this rank imported the peer, and the machine still owes the Drop. Peer names the peer's incarnation
// in both directions: where the peer imported this rank, Link is zero, and on a fenced plane no request of that peer is
// being served any more.
type LinkLost struct {
	Link Link
	Peer Incarnation
}

// TransferDone completes Transfer. Settled says that no access of this transfer can still change a page, or deliver
// bytes that are read from now on as its own; if Settled is false, a Settled event follows exactly once. At is the
// instant that the driver read after it observed the completion.
//
// For a push, OK implies Settled and, on fenced planes, that the target's machine has confirmed the landing. For a
// read, OK implies Settled, that the local pages hold what the peer's pages held in the generations named (Length bytes
// of each), that these bytes have the Sum of the remote page, and that the grant was in force all the while. Corrupt says that all of
// this holds but for the Sum of at least one page. A read that ended with another code says nothing about any
// page.
type TransferDone struct {
	Corr    Corr
	Code    Code
	Settled bool
	At      Time
}

// CopyDone completes Copy. OK says that each To holds the whole content of its From, and implies Settled. Settled says
// that no part of the copy touches a page any more; if Settled is false, a Settled event follows exactly once. A copy
// that ended with another code says nothing about any To. At is the instant that the driver read after it observed the
// completion.
type CopyDone struct {
	Corr    Corr
	Code    Code
	Settled bool
	At      Time
}

// Settled follows a TransferDone or CopyDone that was not settled. Code is OK if the device reported that the transfer
// or copy did complete.
type Settled struct {
	Corr Corr
	Code Code
}

// Landed says, on fenced planes, that a peer's push under Grant has ended at this rank, and which pages were stored
// completely (Length bytes, visible to every reader). The plane closed the grant for exactly these pages before it
// reported them, so no further store under the grant can touch them (M3). Complete says that Pages contains all pages
// of the push. Corrupt is the number of pages that are missing from Pages because their bytes do not have the Sum that
// the Grant stated. Each Landed is answered by one Confirm.
type Landed struct {
	Landing  Landing
	Grant    GrantID
	Peer     Incarnation
	Pages    []Page
	Complete bool
	Corrupt  uint32
}

// Verified completes Verify. Pages are the pages of the Verify that have their Sum, or have none, in order. Corrupt is
// the number of pages that are missing from Pages. The driver does not read the pages any more.
type Verified struct {
	Corr    Corr
	Pages   []Page
	Corrupt uint32
}

// Scattered completes Scatter: the engine's device code has read the pages or has given up on them. The device code
// touches neither the pages nor the memory that it stored them to any more.
type Scattered struct {
	Corr Corr
	Code Code
}

// Revoked completes Revoke: nothing can touch the grant's pages any more. Pages that an earlier Landed of the same
// grant reported are not affected.
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
func (*Verified) isEvent()     {}
func (*Revoked) isEvent()      {}
func (*Dropped) isEvent()      {}

// CompletedEffect returns the Corr of the completed effect.
func (e *Opened) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *Replied) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *Unanswered) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *SendDone) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *Imported) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *TransferDone) CompletedEffect() (c Corr, final bool) { return e.Corr, e.Settled }

// CompletedEffect returns the Corr of the completed effect.
func (e *CopyDone) CompletedEffect() (c Corr, final bool) { return e.Corr, e.Settled }

// CompletedEffect returns the Corr of the completed effect.
func (e *Settled) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *Scattered) CompletedEffect() (c Corr, final bool) { return e.Corr, true }

// CompletedEffect returns the Corr of the completed effect.
func (e *Verified) CompletedEffect() (c Corr, final bool) { return e.Corr, true }
