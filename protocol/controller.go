package protocol

import "math"

// A Worker is who speaks to the controller, or is spoken of: one rank of one instance. Each message that has these
// fields has them together.
type Worker struct {
	InstanceID []byte
	WorkerID   uint32 // the tensor-parallel rank
}

// Fields of Worker, counted from the first one.
const (
	workerInstance = iota
	workerID
)

func (w *Worker) decodeWorker(r *reader, field int) {
	switch field {
	case workerInstance:
		w.InstanceID = r.text()
	case workerID:
		w.WorkerID = r.uint32()
	}
}

func (w *Worker) appendWorker(b []byte) []byte {
	b = appendStr(appendStr(b, "instance_id"), w.InstanceID)
	return appendUint(appendStr(b, "worker_id"), uint64(w.WorkerID))
}

// A Listener is where a worker takes the controller's requests.
type Listener struct {
	IP   []byte
	Port uint16
}

// Fields of Listener, counted from the first one.
const (
	listenerIP = iota
	listenerPort
)

func (l *Listener) decodeListener(r *reader, field int) {
	switch field {
	case listenerIP:
		l.IP = r.text()
	case listenerPort:
		l.Port = uint16(r.uint(math.MaxUint16))
	}
}

func (l *Listener) appendListener(b []byte) []byte {
	b = appendStr(appendStr(b, "ip"), l.IP)
	return appendUint(appendStr(b, "port"), uint64(l.Port))
}
