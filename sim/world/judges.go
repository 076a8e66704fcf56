package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
)

// Judges are who is told what happens in a world, in this order and at its instant. They change nothing of it, but that
// the first who finds a promise broken ends the run; so the world goes on after each call as if there were none.
type Judges interface {
	Started(n *Node, b effects.BufferID)
	BeforeStep(n *Node, k Kind, ev effects.Event)
	AfterStep(n *Node)
	OnDeath(n *Node)
	OnQuiet(n *Node, when string)
	OnReceived(n *Node, d Delivery)
	OnReplied(n *Node, c *Conn, corr effects.Corr, body []byte)
	OnUnreachable(n *Node, c *Conn)
	AfterUnreachable(n *Node, c *Conn)
	OnConnLost(n *Node, conn uint64)
	OnImported(n *Node, corr effects.Corr, code effects.Code)
	OnLinkLost(n *Node, peer effects.Incarnation, theirs bool)
	OnTransferDone(n *Node, t *Transfer, code effects.Code, settled bool)
	OnSettled(t *Transfer)
	OnCopySettled(c *Copy)
	OnRevoked(n *Node, id effects.GrantID)
	OnScattered(n *Node, t effects.Ticket, code effects.Code)
	OnOpen(n *Node, c *Conn)
	OnSend(n *Node, c *Conn, corr effects.Corr, body []byte)
	OnReply(n *Node, request uint64, body []byte)
	OnImport(n *Node, e *effects.Import)
	OnPublish(n *Node, pages []effects.Page)
	OnGrant(n *Node, e *effects.Grant)
	OnLend(n *Node, g *Grant)
	OnTransfer(n *Node, t *Transfer, e *effects.Transfer)
	OnCancel(n *Node, t *Transfer)
	OnCopy(n *Node, c *Copy)
	OnCarried(n *Node, e *effects.Send)  // before its pages are read
	OnStoreIn(n *Node, e *effects.Store) // before its page is written
	OnScatter(n *Node, e *effects.Scatter) bool
	OnFact(n *Node, e *effects.Observe)
	OnSubmit(n *Node, t *Transfer)
	OnFlying(t *Transfer, pair int)
	OnFlown(t *Transfer, pair int)
	OnStore(t *Transfer, pair, half int)
	OnPassed(t *Transfer, pair int)
	OnLanded(t *Transfer)
	OnLandedTold(n *Node, t *Transfer, complete bool)
	OnLoad(t *Transfer, pair int)
	OnReadPassed(t *Transfer, pair int)
	OnUnmap(n *Node, id effects.GrantID)
	OnMove(c *Copy, p effects.CopyPair)
	OnEpochSubmit(n *Node, l *Link, t *Transfer, b CommBatch)
	OnEpochSaid(l *Link, s communicator.Say)
	OnEpochTold(n *Node, l *Link, ev *communicator.Event) // before its machine takes it
	OnEpochPumped(l *Link)
	OnEpochEnd(l *Link, t *Transfer, p communicator.Post)
	OnEpochSettled(l *Link, t *Transfer)
	OnEpochsRevoked(n *Node, r *CommRevoke)
	OnChannelClosed(l *Link)

	Wanted(n *Node, e effects.Effect)  // before it is carried out
	Watched(n *Node, ev effects.Event) // n's machine has made a step, whose effects were carried out
	AtRest(n *Node)                    // faults are over, and what nobody came for was given up
	OnRestart(n *Node)                 // n has begun a new life
	OnAnsweredClosed()                 // an answer is in the mailbox of who has closed its connection
}
