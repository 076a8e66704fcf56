//go:build cgo && linux

package libnixl

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"slices"
	"unsafe"
)

// SendNotice sends a notice to a peer with loaded metadata. A nil error means that the library has accepted the notice,
// which may still be lost.
func (a *Agent) SendNotice(peer string, notice []byte) error {
	return a.callWithPeer(peer, func(name *C.char) C.int {
		return C.nixl_call_notify(a.handle, name, unsafe.Pointer(unsafe.SliceData(notice)), C.size_t(len(notice)))
	})
}

// PollNotices advances what the agent has in flight, and returns the notices that have arrived since the last call. The
// library does not bound their number. The notices of a peer are in the order of their arrival.
func (a *Agent) PollNotices() ([]Notice, error) {
	if err := a.enterCall(); err != nil {
		return nil, err
	}
	defer a.leaveCall()
	var peers C.size_t
	if err := a.callError(C.nixl_call_notices(a.handle, &peers), ""); err != nil || peers == 0 {
		return nil, err
	}
	var list []Notice
	for i := range peers {
		if err := a.appendNotices(i, &list); err != nil {
			return list, err
		}
	}
	return list, a.callError(C.nixl_call_notices_clear(a.handle), "")
}

func (a *Agent) appendNotices(index C.size_t, list *[]Notice) error {
	var peer *C.char
	var count C.size_t
	if err := a.callError(C.nixl_call_notices_of(a.handle, index, &peer, &count), "index=%d", index); err != nil {
		return err
	}
	for i := range count {
		var data unsafe.Pointer
		var bytes C.size_t
		if err := a.callError(C.nixl_call_notice(a.handle, peer, i, &data, &bytes), "index=%d", i); err != nil {
			return err
		}
		n := Notice{Peer: C.GoString(peer)}
		if bytes > 0 {
			n.Bytes = slices.Clone(unsafe.Slice((*byte)(data), bytes))
		}
		*list = append(*list, n)
	}
	return nil
}
