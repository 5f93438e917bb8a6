package sshd

import (
	"net"
	"sync"
)

// logins are the connections without a login yet, oldest first. With more than
// there may be, the oldest is closed: a client that keeps connections open keeps no one out who
// logs in.
type logins struct {
	most int

	mutex   sync.Mutex
	waiting []net.Conn
}

// add adds a connection, and returns what it displaces; nil if nothing.
func (l *logins) add(accepted net.Conn) net.Conn {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.waiting = append(l.waiting, accepted)
	if len(l.waiting) <= l.most {
		return nil
	}
	oldest := l.waiting[0]
	l.waiting = l.waiting[1:]
	return oldest
}

// remove removes a connection that has logged in or ended.
func (l *logins) remove(accepted net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for index, one := range l.waiting {
		if one == accepted {
			l.waiting = append(l.waiting[:index], l.waiting[index+1:]...)
			return
		}
	}
}
