"""Names, paths and URIs to be refused, by the check that refuses them and why; and good ones."""

from __future__ import annotations

SECRET = "hunter2"  # noqa: S105 - it stands for the secret in what follows

HOSTILE: dict[str, dict[str, list[str]]] = {
    "root": {
        "nothing at all": [
            "", " ", "\t", "\n",
        ],
        "leaves the folder": [
            "..", "../data", "data/..", "data/../..", "/data/../etc", "./../data", "/..", "~/..",
            "file:///data/../etc", "s3://bucket/..", "s3://bucket/a/../b", "gs://bucket/../other",
            "az://container/a/..", "memory://name/..",
        ],
        "a dot as a part of a URI": [
            "s3://bucket/.", "s3://bucket/./a", "s3://bucket/a/./b",
        ],
        "percent codes": [
            "/data/%2e%2e/etc", "/data/%2E%2E/etc", "/data/.%2e/etc", "/data/%2fetc",
            "/data/a%00b", "/data/%252e%252e/etc", "/data/%c0%ae%c0%ae/etc",
            "/data/%u002e%u002e/etc", "%2e%2e/data", "file:///data%2f..%2fetc",
            "file:///%2e%2e/etc", "file:///a%20b", "s3://bucket/%2e%2e/x", "s3://bucket/a%2fb",
            "s3://bucket/a%5cb", "s3://bucket/a%0d%0ab", "s3://bucket/%252e%252e",
            "s3://buck%65t/a", "s3://bucket%2fother/a", "s3://%2e%2e/a", "gs://bucket/%00",
            "az://container/%2e%2e%2f",
        ],
        "backslashes": [
            "\\", "data\\..\\etc", "..\\data", "\\\\server\\share", "\\\\?\\C:\\data",
            "\\\\.\\PhysicalDrive0", "C:\\data", "s3://bucket\\other", "s3://bucket/a\\..\\b",
            "file:\\\\server\\share",
        ],
        "other systems' paths": [
            "C:", "C:/data", "c:data", "z:/", "//server/share", "//localhost/c$/data",
            "file://server/share", "file://C:/data", "file://127.0.0.1/data",
            "server:/export/data",
        ],
        "control characters": [
            "/data\0", "/data\0/../etc", "/da\nta", "/data\r", "/data\x1b[2J", "/data\x7f",
            "/data\x08x", "/data\x85x", "s3://bucket/a\0", "s3://bucket/a\nb", "s3://buc\0ket/a",
            "s3://bucket\r\nHost:x/a", "\0", "s3\0://bucket",
        ],
        "characters that are not seen": [
            "/data/\u200bx", "/data/\u200d", "/da\u00adta", "/data\ufeff", "/data/\u202egnp.exe",
            "/data/\u2066x\u2069", "/data/\u200e", "s3://bucket/\u200b", "s3://buc\u200bket/a",
            "\ufeffs3://bucket/a", "/data/\u2028x", "/data/\u2029", "/data/\ue000",
            "/data/\ud800", "/data/\U000e0041", "/data/\u180ex", "/data/\u2060",
        ],
        "characters that look like others": [
            "/data/\uff0e\uff0e/etc", "/data\uff0fetc", "/data/\uff3cetc",
            "/data/\u2024\u2024/etc", "/data/\u2025/etc", "/data/\u2026/etc", "/data\u2044etc",
            "/data\u2215etc", "/data\u29f8etc", "/data/\ufe52\ufe52/etc", "/data\ufe68etc",
            "/data\u2216etc", "/data/\uff05\uff12\uff45", "/data/\u00a0x", "s3\uff1a//bucket/a",
            "s3:\uff0f\uff0fbucket", "s3://bucket\uff0fa", "s3://bucket\uff20other/a",
            "s3://bucket/a\uff1fx", "/data\u2571etc", "/data/\u0338etc", "/data/\u20e5x",
            "/data\u2100etc",
        ],
        "homoglyphs in a URI": [
            "s3://b\u0443cket/a", "s3://\u0430bc/a", "\u04553://bucket/a?", "s3://bucket/\u0430",
            "s3://bucket/e\u0301", "gs://buck\u0435t", "s3://\uff42ucket/a",
            "az://cont\u0131iner",
        ],
        "spaces and dots at the ends": [
            " /data", "/data ", "/data/ x", "/data/x /y", "/data.", "/data/x./y", "/data/...",
            "...", "s3://bucket/a.", "s3://bucket/a ", "s3://bucket/ a", " s3://bucket/a",
            "s3:// bucket/a", "s3://bucket /a", "s3://bucket/a b",
        ],
        "schemes that are not known": [
            "http://bucket/a", "https://bucket.s3.amazonaws.com/a", "ftp://host/a",
            "sftp://host/a", "data:text/plain,x", "javascript:alert(1)", "hdfs://host/a",
            "ssh://host/a", "jar:file:///a!/b", "S3://bucket/a", "S3A://bucket/a",
            "s3a://bucket/a", "s3n://bucket/a", "GS://bucket/a", "gcs://bucket/a", "FILE:///data",
            "File:///data", "Memory://x", "abfs://container/a", "wasbs://container/a",
            "azure://container/a", "postgres://host/db", "git+https://host/a", "unix:/run/x",
            "zip://a", "mailto:someone", "a+b-c.d://x",
        ],
        "too few slashes, or too many": [
            "s3:bucket/a", "s3:/bucket/a", "gs:/bucket", "az:container", "file:data",
            "file:/data", "memory:x", "s3:", "s3:///a", "s3:////bucket", "s3://bucket//a",
            "s3://bucket/a//b", "s3://bucket/a//", "s3://bucket//", "file:////server/share",
            "file://localhost//x", "file://localhost",
        ],
        "no bucket can be called so": [
            "s3://", "s3:///", "gs://", "az://", "memory://", "s3://.", "s3://..", "s3://ab",
            "s3://Bucket/a", "s3://my_bucket/a", "s3://-bucket/a", "s3://bucket-/a",
            "s3://.bucket/a", "s3://bucket./a", "s3://buc..ket/a", "s3://192.168.0.1/a",
            "s3://" + "b" * 64, "gs://a", "gs://Bucket", "gs://buc..ket", "az://Container",
            "az://con--tainer", "az://-con", "az://my_container", "az://$root", "az://ab",
            "memory://UPPER", "memory://a.b", "memory://" + "m" * 65, "s3://bucket,other/a",
            "s3://bucket*/a", "s3://{bucket}/a", "s3://[::1]/a", "s3://bucket|x/a",
            "s3://$HOME/a",
        ],
        "credentials": [
            f"s3://key:{SECRET}@bucket/a", f"s3://{SECRET}@bucket/a", f"s3://key:{SECRET}@bucket",
            f"s3://key:{SECRET}/x@bucket/a", f"s3://AKIAIOSFODNN7EXAMPLE:{SECRET}/bucket",
            f"s3://key:{SECRET}?x@bucket", f"gs://user:{SECRET}@bucket/a",
            f"az://account:{SECRET}@container/a", f"s3:key:{SECRET}@bucket",
            f"s3:/key:{SECRET}@bucket/a", f"S3://key:{SECRET}@bucket/a",
            f"https://user:{SECRET}@host/a", f"ftp://user:{SECRET}@host/a",
            f"file://user:{SECRET}@localhost/data", f"user:{SECRET}@host:/data",
            f"//user:{SECRET}@host/data", f"s3://key%3A{SECRET}%40bucket/a",
            f"s3://key:{SECRET}%40bucket/a", f"s3://key:{SECRET}\uff20bucket/a",
            f"s3://bucket/key:{SECRET}@x", f"memory://x:{SECRET}@y",
        ],
        "ports": [
            "s3://bucket:9000/a", "s3://localhost:9000/bucket", "gs://bucket:443",
            "file://localhost:80/data",
        ],
        "queries and fragments": [
            f"s3://bucket/a?X-Amz-Signature={SECRET}", f"s3://bucket/a#{SECRET}",
            f"s3://bucket?token={SECRET}", f"s3://bucket#{SECRET}",
            f"az://container/a?sig={SECRET}", f"https://a.blob.core.windows.net/c?sig={SECRET}",
            f"gs://bucket/a?X-Goog-Signature={SECRET}", f"file:///data?{SECRET}",
            f"file:///data#{SECRET}", f"s3://bucket/a%3Fsig={SECRET}",
            f"s3://bucket/a;password={SECRET}", f"s3://bucket/a&token={SECRET}", "s3://bucket/?",
            "s3://bucket/#", "memory://x?",
        ],
        "other people's homes": [
            "~root/data", "~other", "~~/data",
        ],
        "too long": [
            "/" + "d" * 256, "/" + "\u540d" * 86, "/" + "d/" * 2000, "s3://bucket/" + "p" * 256,
            "s3://bucket/" + "p/" * 300 + "p",
        ],
    },
    "object": {
        "nothing, or not relative": [
            "", "/", "/a", "//a", "/etc/passwd", "a/", "a//b", "a/b/",
        ],
        "leaves the folder": [
            ".", "..", "./a", "../a", "a/..", "a/../b", "a/./b", "a/.", "../../etc/passwd",
            "..../..",
        ],
        "encoded": [
            "%2e%2e", "a%2fb", "a/%2e%2e/b", "%252e%252e", "a%00", "a%5cb", "%c0%ae",
        ],
        "other systems' paths": [
            "C:", "C:/a", "c:a", "\\a", "a\\b", "..\\a", "\\\\server\\share", "file:a",
            "s3://bucket/a",
        ],
        "devices": [
            "con", "CON", "nul", "NUL.json", "aux.tfrecord", "prn", "com1", "COM9.txt", "lpt1",
            "a/con/b", "a/nul.tar.gz", "Con.x",
        ],
        "control characters": [
            "a\0", "a\0b", "a\nb", "a\n", "\ra", "a\x1bb", "a\x7f", "a\tb", "\x85",
        ],
        "unicode": [
            "\uff0e\uff0e", "a\uff0fb", "a\u2215b", "a\u200bb", "\u202ea", "e\u0301", "\u00e9",
            "\u0430", "\uff41", "\u2024", "a\u2044b", "\ufeffa", "\ud800", "\u0660", "\u17b4",
        ],
        "spaces and dots at the ends": [
            " a", "a ", "a b", "a/ b", "a.", "a./b", "...", "a/...", "a.b.",
        ],
        "signs with a meaning elsewhere": [
            "a*", "a?", "a#1", "a#b", "a&b", "a;b", "a|b", "a<b", "a>b", 'a"b', "a'b", "a`b`",
            "a$b", "~", "~a", "a~1", "a:b", "a,b", "a[0]", "{a}", "a(b)", "a!b", "a^b", "a%b",
        ],
        "too long": [
            "a" * 256, "b/" + "a" * 256, "a/" * 256 + "a",
            "a" * 200 + "/" + "b" * 200 + "/" + "c" * 200,
        ],
        "credentials": [
            f"s3://key:{SECRET}@bucket/a", f"a?sig={SECRET}", f"https://user:{SECRET}@host/a",
        ],
    },
    "dataset": {
        "not a name": [
            "", " ", "a b", "a ", " a", "A", "Digits", "DIGITS", "_a", "-a", "--help", "-rf", ".",
            "..", ".a", "a.b", "a.", "a/b", "/a", "a/", "a\\b", "a:b", "a\0", "a\n", "\na",
            "a\u200b", "\u00e9", "\u0430", "\uff41", "\u0661", "\u00b2", "\u212a", "a\u0301",
            "\u202ea", "a" * 65, "%61", "a%2fb", "a?", "a#", "a@b", "a*", "$a", "${a}", "a;b",
            "a=b", "a+b", "a,b", "'a'", '"a"', "~", "s3://bucket", "con", "nul", "aux", "prn",
            "com1", "lpt9", "None!", "\u0131", "\u00df", f"user:{SECRET}@a", f"a?sig={SECRET}",
        ],
    },
    "version": {
        "a folder that every dataset has": [
            "shards", "quarantine",
        ],
        "not a name": [
            "", "..", "V1", "v1.0", "v/1", "v1\0", "v1 ", "_v1", "-v1", "@v1", "v" * 65, "nul",
            "com0", "v\u2081",
        ],
    },
    "tag": {
        "not a name": [
            "", ".", "Best", "release/1", "v1.2.3", "\u2603", "t" * 65, "aux", "a\tb",
        ],
    },
    "written": {
        "a user in a URI": [
            f"s3://key:{SECRET}@bucket/a", f"s3://{SECRET}@bucket",
            f"https://user:{SECRET}@host/a?b", f"read from ftp://u:{SECRET}@h/a today",
            f"s3://key:{SECRET}/x@bucket", f"postgresql+psycopg2://u:{SECRET}@h/db",
            f"S3://key:{SECRET}@bucket", f"s3://key%3A{SECRET}%40bucket/a",
            f"s3%3A%2F%2Fkey%3A{SECRET}%40bucket", f"s3://key%253A{SECRET}%2540bucket",
        ],
        "a signature or key": [
            f"https://h/a?sig={SECRET}", f"https://h/a?sv=1&sig={SECRET}",
            f"https://h/a?X-Amz-Signature={SECRET}", f"https://h/a?x-amz-signature={SECRET}",
            f"https://h/a?X-Amz-Security-Token={SECRET}",
            f"https://h/a?X-Amz-Credential={SECRET}", f"https://h/a?X-Goog-Signature={SECRET}",
            f"https://h/a?X-Goog-Credential={SECRET}", f"https://h/a?GoogleAccessId={SECRET}",
            f"https://h/a?AWSAccessKeyId={SECRET}", f"https://h/a?token={SECRET}",
            f"https://h/a?access_token={SECRET}", f"https://h/a#id_token={SECRET}",
            f"https://h/a?Signature={SECRET}",
            f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}",
            f"SharedAccessSignature={SECRET}", f"SharedAccessKey={SECRET}",
            f"/data/a?password={SECRET}", f"passwd={SECRET}", f"pwd={SECRET}",
            f"api_key={SECRET}", f"apikey={SECRET}", f"https://h/a?key={SECRET}",
            f"client_secret={SECRET}", f"AWS_SECRET_ACCESS_KEY={SECRET}",
            f"aws_session_token={SECRET}", f"secret={SECRET}", f"https://h/a%3Fsig%3D{SECRET}",
            f"https://h/a?b=https%3A%2F%2Fh%2F%3Fsig%3D{SECRET}",
            f"https://h/a?sas_token={SECRET}", f"https://h/a?sastoken={SECRET}",
            f"private_key={SECRET}", f"azure_storage_account_key={SECRET}",
            f"https://h/?authorization={SECRET}",
        ],
    },
}  # fmt: skip

GOOD: dict[str, list[str]] = {
    "root": [
        "data", "./data", ".", "data/", "/data", "/", "/data/a b/c", "/data/100% real",
        "/data/\u540d\u524d", "/data/e\u0301t\u00e9", "/data/.hidden", "/data/a@b", "/data/a:b",
        "~", "~/data", "file:///data", "file://localhost/data", "s3://bucket", "s3://bucket/",
        "s3://bucket/a", "s3://bucket/a/", "s3://bucket/a/b=1/c.d", "s3://my.bucket-1/a",
        "s3://abc", "gs://bucket/a", "gs://my_bucket", "az://container", "az://my-container/a",
        "memory://x", "memory://x/a",
    ],
    "object": [
        "a", "a/b/c", "digits/v1/log/00000000.json", "digits/shards/0a1b.tfrecord",
        ".probe-0123456789abcdef", "a/.b.tmp", "A_b-c.D=1+2@3", "..a", "a..b", "a" * 255,
        "console", "a/nullable", "com10", "0", "auxiliary.txt", "a/" * 255 + "a",
    ],
    "dataset": [
        "digits", "a", "0", "a" * 64, "a_b-c", "2024-01-01", "a-", "a_", "shards", "quarantine",
        "console", "com10", "null",
    ],
    "version": [
        "v1", "main", "shards2", "a-quarantine", "0",
    ],
    "tag": [
        "best", "shards", "release-1_2",
    ],
    "written": [
        "/data/a", "s3://bucket/a", "https://host/a?b=c", "s3://bucket/a@b", "/home/me@host/a",
        "user@host is no URI", "signal=1", "/data/tokens/a", "keys=3", "design=x",
        "/data/key=5/a", "C:\\data", "", "100%", "a%zzb", "passwordless",
        "a" * 4000, "a_" * 2000, "x-" * 2000, "s3:" * 1000, "%25" * 1000,
    ],
}  # fmt: skip
