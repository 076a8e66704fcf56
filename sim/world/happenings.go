package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What a world reports to the oracles of a run ([World.Panel]), each at its instant, beside what every driver reports:
// events, effects, and what package oracle declares. An oracle subscribes to a type with [oracle.On]. A report is made
// before what it says is carried out, unless its comment says otherwise. Oracles change nothing of a world, except that
// the first that finds a promise broken ends the run: the world goes on after each report as if there were none.
type (
	// Started: a rank begins an incarnation, whose memory has that name.
	Started struct {
		Node   *Node
		Buffer effects.BufferID
	}
	// Stepping: Node's machine is about to be given an event.
	Stepping struct {
		Node  *Node
		Kind  Kind
		Event effects.Event
	}
	// Wanted: Node's machine wants an effect, which is not carried out yet.
	Wanted struct {
		Node   *Node
		Effect effects.Effect
	}
	// Restarted: Node has begun another incarnation.
	Restarted struct {
		Node *Node
	}
	// Rested: nothing is under way in Node any more; When says since when, for a sentence.
	Rested struct {
		Node *Node
		When string
	}
	// Received: Node's machine is about to be given a message.
	Received struct {
		Node     *Node
		Delivery Delivery
	}
	// Replied: Node's machine is about to be given a reply to what it sent on Conn.
	Replied struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// AnsweredClosed: a reply is in the mailbox of a node that has closed its connection.
	AnsweredClosed struct{}
	// Unreachable: Node's machine is about to be told that nobody listens where it connects.
	Unreachable struct {
		Node *Node
		Conn *Conn
	}
	// FoundUnreachable: it was told that, and made its step.
	FoundUnreachable struct {
		Node *Node
		Conn *Conn
	}
	// ConnLost: Node's machine is about to be told that a connection is lost.
	ConnLost struct {
		Node *Node
		Conn uint64
	}
	// Imported: Node's machine is about to be told how an import ended.
	Imported struct {
		Node *Node
		Corr effects.Corr
		Code effects.Code
	}
	// LinkLost: Node's machine is about to be told that its link to Peer is lost or, if Theirs, the link over which
	// Peer reached it.
	LinkLost struct {
		Node   *Node
		Peer   effects.Incarnation
		Theirs bool
	}
	// TransferDone: Node's machine is about to be told that a transfer is done.
	TransferDone struct {
		Node     *Node
		Transfer *Transfer
		Code     effects.Code
		Settled  bool
	}
	// TransferSettled: a transfer touches no page any more, and its machine is about to be told so, perhaps together
	// with TransferDone.
	TransferSettled struct {
		Transfer *Transfer
	}
	// CopySettled: a copy touches no page any more, and its machine is about to be told so.
	CopySettled struct {
		Copy *Copy
	}
	// Revoked: Node's machine is about to be told that a grant is revoked.
	Revoked struct {
		Node  *Node
		Grant effects.GrantID
	}
	// Scattered: Node's machine is about to be told how the engine's device code took chunks.
	Scattered struct {
		Node   *Node
		Ticket effects.Ticket
		Code   effects.Code
	}
	// LandedTold: Node's machine is about to be told what a peer wrote to its pages.
	LandedTold struct {
		Node     *Node
		Transfer *Transfer
		Complete bool
	}
	// Opening: Node opens a connection.
	Opening struct {
		Node *Node
		Conn *Conn
	}
	// Sending: Node sends a request.
	Sending struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// Replying: Node answers the request of that number.
	Replying struct {
		Node    *Node
		Request uint64
		Body    []byte
	}
	// Importing: Node imports a peer's memory.
	Importing struct {
		Node   *Node
		Effect *effects.Import
	}
	// Publishing: the pages of a grant of Node's become readable, or writable, for a peer.
	Publishing struct {
		Node  *Node
		Pages []effects.Page
	}
	// Granting: Node lets a peer write pages.
	Granting struct {
		Node   *Node
		Effect *effects.Grant
	}
	// Lending: Node lets a peer read pages.
	Lending struct {
		Node  *Node
		Grant *Grant
	}
	// Transferring: Node begins a transfer.
	Transferring struct {
		Node     *Node
		Transfer *Transfer
		Effect   *effects.Transfer
	}
	// Cancelling: Node asks for a transfer to be cancelled.
	Cancelling struct {
		Node     *Node
		Transfer *Transfer
	}
	// Copying: Node begins a copy between pages of its own.
	Copying struct {
		Node *Node
		Copy *Copy
	}
	// Carrying: Node sends the content of pages, which are not read yet.
	Carrying struct {
		Node   *Node
		Effect *effects.Send
	}
	// Storing: Node stores bytes that it received into a page, which is not written yet.
	Storing struct {
		Node   *Node
		Effect *effects.Store
	}
	// Scattering: Node hands chunks to the engine's device code.
	Scattering struct {
		Node   *Node
		Effect *effects.Scatter
	}
	// Observed: Node's machine states a fact.
	Observed struct {
		Node   *Node
		Effect *effects.Observe
	}
	// Submitted: the plane submits a transfer to the device.
	Submitted struct {
		Node     *Node
		Transfer *Transfer
	}
	// Flying: a store to a pair's page is under way and may land at any time.
	Flying struct {
		Transfer *Transfer
		Pair     int
	}
	// Flown: that store cannot land any more.
	Flown struct {
		Transfer *Transfer
		Pair     int
	}
	// Stored: half of a pair's page is written.
	Stored struct {
		Transfer   *Transfer
		Pair, Half int
	}
	// Passed: a pair was left out, because its page must not be written any more.
	Passed struct {
		Transfer *Transfer
		Pair     int
	}
	// Landed: all of a transfer that will land has landed.
	Landed struct {
		Transfer *Transfer
	}
	// Loaded: a pair's page is read.
	Loaded struct {
		Transfer *Transfer
		Pair     int
	}
	// ReadPassed: a pair was left out of a read.
	ReadPassed struct {
		Transfer *Transfer
		Pair     int
	}
	// Unmapped: a grant's pages cannot be reached by its peer any more.
	Unmapped struct {
		Node  *Node
		Grant effects.GrantID
	}
	// Moving: a copy moves bytes.
	Moving struct {
		Copy *Copy
		Pair effects.CopyPair
	}
	// EpochSubmitted: a batch of a transfer is submitted on a communicator.
	EpochSubmitted struct {
		Node     *Node
		Link     *Link
		Transfer *Transfer
		Batch    CommBatch
	}
	// EpochSaid: a communicator's machine says something to its peer.
	EpochSaid struct {
		Link *Link
		Say  communicator.Say
	}
	// EpochTold: a communicator's machine is about to be given an event.
	EpochTold struct {
		Node  *Node
		Link  *Link
		Event *communicator.Event
	}
	// EpochPumped: a communicator's machine has no more to do now.
	EpochPumped struct {
		Link *Link
	}
	// EpochEnded: a communicator says how a transfer ended.
	EpochEnded struct {
		Link     *Link
		Transfer *Transfer
		Post     communicator.Post
	}
	// EpochSettled: a communicator says that a transfer touches no page any more.
	EpochSettled struct {
		Link     *Link
		Transfer *Transfer
	}
	// EpochsRevoked: a grant is revoked for every communicator.
	EpochsRevoked struct {
		Node   *Node
		Revoke *CommRevoke
	}
	// ChannelClosed: the channel of a communicator is closed.
	ChannelClosed struct {
		Link *Link
	}
)

// Declarations of what a world reports.
var (
	OnStarted          = oracle.NewHappening[Started]()
	OnStepping         = oracle.NewHappening[Stepping]()
	OnWanted           = oracle.NewHappening[Wanted]()
	OnRestarted        = oracle.NewHappening[Restarted]()
	OnRested           = oracle.NewHappening[Rested]()
	OnReceived         = oracle.NewHappening[Received]()
	OnReplied          = oracle.NewHappening[Replied]()
	OnAnsweredClosed   = oracle.NewHappening[AnsweredClosed]()
	OnUnreachable      = oracle.NewHappening[Unreachable]()
	OnFoundUnreachable = oracle.NewHappening[FoundUnreachable]()
	OnConnLost         = oracle.NewHappening[ConnLost]()
	OnImported         = oracle.NewHappening[Imported]()
	OnLinkLost         = oracle.NewHappening[LinkLost]()
	OnTransferDone     = oracle.NewHappening[TransferDone]()
	OnTransferSettled  = oracle.NewHappening[TransferSettled]()
	OnCopySettled      = oracle.NewHappening[CopySettled]()
	OnRevoked          = oracle.NewHappening[Revoked]()
	OnScattered        = oracle.NewHappening[Scattered]()
	OnLandedTold       = oracle.NewHappening[LandedTold]()
	OnOpening          = oracle.NewHappening[Opening]()
	OnSending          = oracle.NewHappening[Sending]()
	OnReplying         = oracle.NewHappening[Replying]()
	OnImporting        = oracle.NewHappening[Importing]()
	OnPublishing       = oracle.NewHappening[Publishing]()
	OnGranting         = oracle.NewHappening[Granting]()
	OnLending          = oracle.NewHappening[Lending]()
	OnTransferring     = oracle.NewHappening[Transferring]()
	OnCancelling       = oracle.NewHappening[Cancelling]()
	OnCopying          = oracle.NewHappening[Copying]()
	OnCarrying         = oracle.NewHappening[Carrying]()
	OnStoring          = oracle.NewHappening[Storing]()
	OnScattering       = oracle.NewHappening[Scattering]()
	OnObserved         = oracle.NewHappening[Observed]()
	OnSubmitted        = oracle.NewHappening[Submitted]()
	OnFlying           = oracle.NewHappening[Flying]()
	OnFlown            = oracle.NewHappening[Flown]()
	OnStored           = oracle.NewHappening[Stored]()
	OnPassed           = oracle.NewHappening[Passed]()
	OnLanded           = oracle.NewHappening[Landed]()
	OnLoaded           = oracle.NewHappening[Loaded]()
	OnReadPassed       = oracle.NewHappening[ReadPassed]()
	OnUnmapped         = oracle.NewHappening[Unmapped]()
	OnMoving           = oracle.NewHappening[Moving]()
	OnEpochSubmitted   = oracle.NewHappening[EpochSubmitted]()
	OnEpochSaid        = oracle.NewHappening[EpochSaid]()
	OnEpochTold        = oracle.NewHappening[EpochTold]()
	OnEpochPumped      = oracle.NewHappening[EpochPumped]()
	OnEpochEnded       = oracle.NewHappening[EpochEnded]()
	OnEpochSettled     = oracle.NewHappening[EpochSettled]()
	OnEpochsRevoked    = oracle.NewHappening[EpochsRevoked]()
	OnChannelClosed    = oracle.NewHappening[ChannelClosed]()
)
