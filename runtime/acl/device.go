//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

// A DeviceID is a device number from 0 to DeviceCount-1, among the devices that are visible to this process. The
// vendor's term is "user id". Rank tables, hccn.conf and npu-smi count differently: see PhysicalID.
type DeviceID int32

// DeviceCount returns the number of visible devices.
func (l *Library) DeviceCount() (int, error) {
	var count C.uint32_t
	err := l.callWithoutContext("aclrtGetDeviceCount", func(c *C.struct_call) C.int { return C.call_device_count(c, &count) }, "")
	return int(count), err
}

// PhysicalID returns the device's number in rank tables, hccn.conf and npu-smi.
func (l *Library) PhysicalID(d DeviceID) (int, error) {
	var physical C.int32_t
	err := l.callWithoutContext("aclrtGetPhyDevIdByLogicDevId", func(c *C.struct_call) C.int {
		return C.call_physical_device(c, C.int32_t(d), &physical)
	}, "device=%d", d)
	return int(physical), err
}

// A SuperPod is the position of a device among the hosts that HCCS connects, which rank tables of version 1.2 contain.
// For chips without super pods the query fails with Unsupported.
type SuperPod struct{ ID, Server, Device int64 }

// SuperPod returns the position of a device.
func (l *Library) SuperPod(d DeviceID) (SuperPod, error) {
	var position SuperPod
	for _, query := range []struct {
		attribute C.int
		into      *int64
	}{
		{C.ACL_DEVICE_SUPER_POD, &position.ID},
		{C.ACL_DEVICE_SUPER_POD_SERVER, &position.Server},
		{C.ACL_DEVICE_SUPER_POD_DEVICE, &position.Device},
	} {
		var value C.int64_t
		if err := l.callWithoutContext("aclrtGetDeviceInfo", func(c *C.struct_call) C.int {
			return C.call_device_info(c, C.uint32_t(d), query.attribute, &value)
		}, "device=%d attribute=%d", d, query.attribute); err != nil {
			return SuperPod{}, err
		}
		*query.into = int64(value)
	}
	return position, nil
}

// CanAccessPeer reports whether a device can copy directly from and to another device of this host.
func (l *Library) CanAccessPeer(d, peer DeviceID) (bool, error) {
	var can C.int32_t
	err := l.callWithoutContext("aclrtDeviceCanAccessPeer", func(c *C.struct_call) C.int {
		return C.call_can_access_peer(c, C.int32_t(d), C.int32_t(peer), &can)
	}, "device=%d peer=%d", d, peer)
	return can != 0, err
}
