package target

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

// spec: 29.1, 29.2, 29.3, 29.4
func TestARuleMatchesItsPaths(t *testing.T) {
	for _, one := range []struct {
		rule, target string
		matches      bool
	}{
		{"/chat", "/chat", true},
		{"/chat", "/chat?x=/other", true},
		{"/chat", "/chat/", false},
		{"/chat", "/Chat", false},
		{"/chat", "/%63hat", true},
		{"/chat", "/chatty", false},
		{"/v1/user/*", "/v1/user/", true},
		{"/v1/user/*", "/v1/user/1/2", true},
		{"/v1/user/*", "/v1/user", false},
		{"/v1/chat*", "/v1/chat", true},
		{"/v1/chat*", "/v1/chat/x", true},
		{"/v1/chat*", "/v1/chatty", false},
		{"/v1/chat*", "/v1/chat%2Fx", false},
		{"/v1/chat*", "/v1/chat?x", true},
		{"/a/b", "/a%2fb", false},
		{"/a*b", "/a*b", true},
		{"/a*b", "/axb", false},
		{"/a*b", "/a%2Ab", true},
		{"/ä", "/%c3%A4", true},
		{"/(x)[y]^-\\", "/(x)[y]^-\\", true},
		{"/a.b", "/axb", false},
		{"/a?b", "/a%3Fb", true},
		{"/", "/", true},
		{"/", "//", false},
		{"/{id}", "/{id}", true},
		{"/{id}", "/%7Bid%7D", true},
		{"/caf%C3%A9", "/caf%c3%a9", true},
		{"/a%2Fb", "/a%2fb", true},
		{"/a%2Fb", "/a/b", false},
		{"/a%20b", "/a%20b", true},
		{"/a%20b", "/a%2520b", false},
		{"/100%", "/100%25", true},
		{"/100%25", "/100%25", true},
		{"/a%2A", "/a*", true},
		{"/a%2A", "/a/b", false},
	} {
		if newPathRule(one.rule).matches(one.target) != one.matches {
			t.Errorf("%s and %s: %t", one.rule, one.target, !one.matches)
		}
	}
}

// spec: 29.5
func TestDotSegmentsAreSeenInEverySpelling(t *testing.T) {
	for target, has := range map[string]bool{
		"/v1/../x": true, "/v1/..": true, "/v1/.": true, "/./v1": true, "/v1/%2e%2E/x": true, "/v1/..%2fx": true,
		"/v1/%5c..%5cx": true, "/v1/.%2e?q": true, "/v1/..;/x": true, "/v1\\..\\x": true,
		"/v1/x": false, "/v1/...": false, "/v1/.well-known": false, "/v1/x?p=/../": false, "/a..b/": false,
	} {
		if hasDotSegment(target) != has {
			t.Errorf("%s: %t", target, !has)
		}
		if NewListed([]string{"/v1/*", "/a*"}).Has(target) && has {
			t.Errorf("%s is listed", target)
		}
	}
}

func TestATargetThatIsNoPathIsNotListed(t *testing.T) {
	for _, target := range []string{"*", "", "v1/chat"} {
		if NewListed([]string{allPaths}).Has(target) {
			t.Errorf("%q is listed", target)
		}
	}
	if !NewListed([]string{allPaths}).Has("/a/../b") {
		t.Error("a path is not listed where all are")
	}
}

func TestAKeyIsNeededForWhatMightReachThePath(t *testing.T) {
	for _, one := range []struct {
		rule, target string
		reaches      bool
	}{
		{"/v1/chat", "/v1/chat", true},
		{"/v1/chat", "/V1//ChAt/", true},
		{"/v1/chat", "\\v1%2f%5Cchat", true},
		{"/v1/chat", "/v1;x/chat;y=/z", true},
		{"/v1/chat", "/v1/%43hat.json?x", true},
		{"/v1/chat", "/v1/chat%0A", true},
		{"/v1/chat", "/v1/chat/x", false},
		{"/v1/chat", "/v1/chats", false},
		{"/v1/chat", "/v1/chat-2", false},
		{"/v1/chat", "/x/v1/chat", false},
		{"/v1/chat", "/x?/v1/chat", false},
		{"/v1/*", "/V1", true},
		{"/v1/*", "/v1%2Fx?y", true},
		{"/v1/*", "/v10", false},
		{"/v1*", "/v1/x", true},
		{"/v1*", "/v10", false},
		{"/", "/", true},
		{"/", "//", true},
		{"/", "/x", false},
		{"/*", "/any%2fthing?x", true},
		{"/a.b/", "/A%2EB", true},
		{"/a.b/", "/aXb", false},
		{"/a%2Fb", "/a/b", true},
		{"/%43af", "/%63AF", true},
	} {
		if newKeyRule(one.rule).reaches(one.target) != one.reaches {
			t.Errorf("%s and %s: %t", one.rule, one.target, !one.reaches)
		}
	}
}

// pieces are what spellings of a path are made of.
var pieces = strings.Fields("/ / // %2f %5C \\ . .. %2e %252e %252F ; ;a=b %3b v1 V1 %76%31 %2576 " +
	"chat CHAT ch%61t %43HAT x .json %20 %00 ?q")

// eachSpelling calls a function with many targets, the same in each run.
func eachSpelling(check func(target string)) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var spelled strings.Builder
		spelled.WriteByte('/')
		for range random.IntN(10) {
			spelled.WriteString(pieces[random.IntN(len(pieces))])
		}
		check(spelled.String())
	}
}

// carelessly reads a target as a careless server does: decoded twice, folded, without what is optional.
func carelessly(target string) string {
	read := WithoutQuery(target)
	for range 2 {
		var once strings.Builder
		for rest := read; rest != ""; {
			if value, isEncoded := decoded(rest); isEncoded {
				once.WriteByte(value)
				rest = rest[3:]
				continue
			}
			once.WriteByte(rest[0])
			rest = rest[1:]
		}
		read = once.String()
	}
	read = strings.ToLower(strings.ReplaceAll(read, "\\", "/"))
	if end := strings.IndexAny(read, "?#\x00"); end >= 0 {
		read = read[:end]
	}
	segments := strings.Split(read, "/")
	for index, segment := range segments {
		segments[index], _, _ = strings.Cut(segment, ";")
	}
	read = path.Clean("/" + strings.TrimSpace(strings.Join(segments, "/")))
	return "/" + strings.TrimSuffix(strings.TrimRight(strings.TrimLeft(read, "/"), "/ "), ".json")
}

func TestWhatACarelessServerTakesForThePathNeedsTheKey(t *testing.T) {
	keyed, found := NewKeyed([]string{"/v1/chat"}), 0
	eachSpelling(func(target string) {
		if carelessly(target) != "/v1/chat" {
			return
		}
		found++
		if !keyed.Has(target) {
			t.Errorf("%s needs no key", target)
		}
	})
	if found == 0 {
		t.Error("no target is one")
	}
}

func TestWhatIsListedIsReached(t *testing.T) {
	eachSpelling(func(target string) {
		for _, rule := range []string{"/v1/chat", "/v1/*", "/v1*", "/*", "/"} {
			if newPathRule(rule).matches(target) && !newKeyRule(rule).reaches(target) {
				t.Errorf("%s is of %s and does not reach it", target, rule)
			}
		}
	})
}
