package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// layerKeys are the keys of some layers of chunk a.
func layerKeys(layers ...uint32) (list [][]byte) {
	for _, layer := range layers {
		list = append(list, protocol.AppendLayerKey(nil, key("a"), layer))
	}
	return list
}

// requestLayers asks for pages of layers of three, in an operation, under the grant that opened their chunk or none.
func (r *serving) requestLayers(who effects.Incarnation, list [][]byte, operation uint64, opened effects.GrantID) effects.Request {
	r.t.Helper()
	return r.requestPages(who, list, func(m *protocol.AllocRequest) {
		m.Ext.Operation, m.Ext.Layers, m.Ext.Epoch, m.Ext.Opened = operation, 3, 1, uint64(opened)
	})
}

// grantOf is the grant that answers a request.
func (r *serving) grantOf(q effects.Request) effects.GrantID {
	r.t.Helper()
	r.wantGranted(q, 1)
	return effects.GrantID(r.replies[q].Ext.Grant)
}

// The network may delay a message that opens a chunk until its sender has given up its connection, has asked again, and
// has gone on. Whenever it comes then: layers never go on with what another message opened.
func TestOpeningsThatComeLate(t *testing.T) {
	withLayers := func(c *Config) { c.Layers, c.BundlesMax, c.Pages = 3, 4, 12 }

	t.Run("before the one that counts", func(t *testing.T) {
		r := newServing(t, withLayers)
		who := r.connectPeer(1)
		late := r.grantOf(r.requestLayers(who, layerKeys(0), 7, 0))
		opened := r.grantOf(r.requestLayers(who, layerKeys(1), 8, 0))
		r.wantRefused(r.requestLayers(who, layerKeys(2), 9, late), effects.Withdrawn)
		r.wantGranted(r.requestLayers(who, layerKeys(2), 10, opened), 1)
		r.wantGranted(r.requestLayers(who, layerKeys(0), 11, opened), 1) // Nothing of the late one has its place.
	})
	t.Run("after it", func(t *testing.T) {
		r := newServing(t, withLayers)
		who := r.connectPeer(1)
		opened := r.grantOf(r.requestLayers(who, layerKeys(1), 8, 0))
		r.wantRefused(r.requestLayers(who, layerKeys(0), 7, 0), effects.Withdrawn)
		r.wantGranted(r.requestLayers(who, layerKeys(0, 2), 9, opened), 2)
	})
	t.Run("with a layer that goes on", func(t *testing.T) {
		r := newServing(t, withLayers)
		who := r.connectPeer(1)
		opened := r.grantOf(r.requestLayers(who, layerKeys(1), 8, 0))
		r.wantGranted(r.requestLayers(who, layerKeys(0), 9, opened), 1)
		r.wantRefused(r.requestLayers(who, layerKeys(0), 10, opened), effects.Withdrawn)
	})
	t.Run("after what it opened is lost", func(t *testing.T) {
		r := newServing(t, withLayers)
		who := r.connectPeer(1)
		opened := r.grantOf(r.requestLayers(who, layerKeys(0), 8, 0))
		r.commitAndAbort(who, nil, []effects.GrantID{opened})
		r.confirmRevokes()
		r.wantGranted(r.requestLayers(who, layerKeys(0), 8, 0), 1)
		r.wantRefused(r.requestLayers(who, layerKeys(1), 9, opened), effects.Withdrawn)
	})
}
