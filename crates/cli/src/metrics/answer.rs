//! What whoever asks by HTTP gets: requests are read no further than is needed to refuse all but one.

/// An answer: status, content and what else is in its head.
#[derive(PartialEq, Eq, Debug)]
pub struct Answer {
    status: &'static str,
    content_type: &'static str,
    more: &'static str,
    body: String,
    /// The body is not wanted, but its length is.
    head_only: bool,
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// The page.
    Page,
    /// Its head.
    Head,
}

impl Answer {
    fn plain(status: &'static str, body: impl Into<String>) -> Answer {
        let body = format!("{}\n", body.into());
        Answer { status, content_type: "text/plain; charset=utf-8", more: "", body, head_only: false }
    }

    /// The page of the node.
    pub fn page(text: String, wish: Wish) -> Answer {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Answer { status: "200 OK", content_type, more: "", body: text, head_only: wish == Wish::Head }
    }

    /// The node did not answer; it may be back when the next one asks.
    pub fn no_node(why: &str) -> Answer {
        Answer::plain("503 Service Unavailable", why)
    }

    /// The head of the request has not come in time.
    pub fn too_slow() -> Answer {
        Answer::plain("408 Request Timeout", "the request took too long")
    }

    /// The head of the request is too long.
    pub fn too_long() -> Answer {
        Answer::plain("431 Request Header Fields Too Large", "the request is too long")
    }

    /// As it goes over the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Answer { status, content_type, more, body, .. } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}\
             Connection: close\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        if !self.head_only {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// What the request with this head wants, or the refusal.
pub fn wish(head: &[u8]) -> Result<Wish, Answer> {
    let line = head.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return Err(malformed()) };
    if !version.starts_with("HTTP/1.") || method.is_empty() {
        return Err(malformed());
    }
    // A proxy's form of a target, with scheme and host, is not meant for us.
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if path != "/metrics" {
        return Err(Answer::plain("404 Not Found", "there is /metrics"));
    }
    match method {
        "GET" => Ok(Wish::Page),
        "HEAD" => Ok(Wish::Head),
        _ => {
            let refusal = Answer::plain("405 Method Not Allowed", "there is GET");
            Err(Answer { more: "Allow: GET, HEAD\r\n", ..refusal })
        }
    }
}

fn malformed() -> Answer {
    Answer::plain("400 Bad Request", "no request of HTTP/1.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_there_and_only_to_be_read() {
        assert_eq!(wish(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(Wish::Page));
        assert_eq!(wish(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Ok(Wish::Page));
        assert_eq!(wish(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Ok(Wish::Head));
        for (head, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
            (b"GET http://x/metrics HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"", "400"),
        ] {
            let refusal = wish(head).expect_err("a refusal");
            assert!(refusal.status.starts_with(status), "{head:?}: {refusal:?}");
        }
    }

    #[test]
    fn an_answer_has_its_length_and_its_end() {
        let text = |answer: Answer| String::from_utf8(answer.to_bytes()).unwrap();
        let page = text(Answer::page("x 1\n".into(), Wish::Page));
        assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{page}");
        assert!(page.contains("Content-Length: 4\r\nConnection: close\r\n\r\n"), "{page}");
        assert!(page.ends_with("\r\n\r\nx 1\n"), "{page}");
        let head = text(Answer::page("x 1\n".into(), Wish::Head));
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let refusal = text(wish(b"PUT /metrics HTTP/1.1\r\n\r\n").unwrap_err());
        assert!(refusal.contains("\r\nAllow: GET, HEAD\r\nConnection"), "{refusal}");
    }
}
