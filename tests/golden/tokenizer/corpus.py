"""The text that the small tokenizers are trained on, and the texts that they are asked to encode."""

import random

WORDS = {
    "english": """the of and to in is that for it was on as with be by at this from or have an they
        which one you were all her she there would their we him been has when who will more no if
        out so said what up its about into than them can only other new some could time these two
        may then do first any my now such like our over man me even most made after also did many
        before must through years where much your way well down should because each just those
        people how too little state good very make world still own see men work long get here
        between both life being under never day same another know while last might us great old
        year off come since against go came right used take three don't can't it's we're they've
        you'll I'd isn't Don't IT'S WE'RE token tokens model tokenizer language machine learning
        attention layer matrix vector hello Hello HELLO world World""",
    "german": "über größe straße schön müssen können Mädchen Füße äußerst nächste Universität",
    "french": "être déjà français élève où ça garçon naïve cœur très à l'été c'est aujourd'hui",
    "russian": "и в не на я быть он с что а по это она этот к но они мы весь который из у язык слово",
    "greek": "και το της η να του για με από είναι γλώσσα λέξη Ελλάδα ΕΛΛΑΔΑ ήλιος",
    "chinese": "的 一 是 不 了 人 我 在 有 他 这 中 大 来 上 国 个 到 说 们 语言 模型 你好 世界 学习",
    "japanese": "これ は です 言語 モデル こんにちは 世界 日本語 カタカナ ひらがな を の に が と",
    "korean": "안녕하세요 세계 언어 모델 한국어 나는 학교 에 갑니다 이것은 입니다",
    "arabic": "مرحبا بالعالم اللغة العربية نموذج في من على هذا كان",
    "hebrew": "שלום עולם שפה מודל את של על לא זה",
    "hindi": "नमस्ते दुनिया भाषा मॉडल है और में की हिन्दी",
    "thai": "สวัสดี ชาวโลก ภาษา ไทย แบบจำลอง",
    "code": """def return for while if else import self.value() x += 1 ; { } [0] == != -> => // # /* */
        int main(void) printf("%d\\n", i); #include <stdio.h> lambda x: x**2 True None const char *p""",
    "numbers": "0 1 2 3 10 12 42 100 128 256 1000 1024 1999 2024 3.14 1,000,000 0x7f 1e-5 ١٢٣ ½ ²",
    "emoji": "😀 👍 ❤️ 👨‍👩‍👧‍👦 🇫🇷 👍🏽 ✨ 🤖",
}
SEPARATORS = [" ", " ", " ", " ", " ", ", ", ". ", "\n", "\n\n", "  ", "\t", "    ", "! ", "? ", "-", "_", "/"]


def lines(count=1200, seed=7):
    """Lines of words, mostly of one language each, with all the separators between them."""
    rng = random.Random(seed)
    weights = [10 if name == "english" else 3 if name == "code" else 1 for name in WORDS]
    lists = [words.split() for words in WORDS.values()]
    for _ in range(count):
        words = rng.choices(lists, weights)[0]
        text = ""
        for _ in range(rng.randint(4, 14)):
            text += rng.choice(words) + rng.choice(SEPARATORS)
        yield text


# U+E000 stands for NUL, which JSON text cannot carry through every reader.
TEXTS = [
    "",
    " ",
    "  ",
    "a",
    "Hello world",
    " Hello world ",
    "The quick brown fox jumps over the lazy dog.",
    # digits
    "0 1 12 123 1234 12345 123456 1234567 12345678 123456789",
    "3.14159, 1,234,567.89 and 0xDEADBEEF, 1e-10; ½ + ¼ = ¾, x² + y³, Ⅷ, ١٢٣٤ ६७८ 四五六 １２３",
    "v1.2.3-rc4 2024-11-27T13:37:00Z 192.168.0.1 +1 (555) 010-9999",
    # contractions
    "I'm you're he's she'll we've they'd don't can't it's",
    "I'M YOU'RE HE'S SHE'LL WE'VE THEY'D DON'T IT'S 'Tis 'tWas 'S 'sx 'llama 'REd 'ſ O'Neill",
    "don’t it’s ’tis l'été aujourd'hui ''' 'a' \"it's\" '' ' 's",
    # white space
    "a b  c   d    e     f      g",
    "   leading and trailing   ",
    "tab\ttab\t\ttab\t\t\tx \t y\t z",
    "line\nline\n\nline\n\n\nline \n line  \n  line\n",
    "\n", "\n\n", "\n\n\n\n", " \n", "\n ", "\t\n \t\n", "\r", "\r\n", "\r\n\r\n",
    "dos\r\nlines\r\n\r\nold mac\rend\n\r",
    "nbsp\u00a0between\u00a0\u00a0words, em\u2003space, ideographic\u3000space, thin\u2009space\u205f\u1680.",
    "vt\u000bff\u000cnel\u0085ls\u2028ps\u2029end mongolian\u180evowel separator",
    " " * 100, "x" + " " * 37 + "y", "\n" * 40, "\t" * 17 + "x",
    # scripts
    "你好，世界！这是一个语言模型。学习中文、日本語と한국어。",
    "これは日本語のテストです。カタカナとひらがな、漢字。ｶﾀｶﾅ",
    "안녕하세요 세계! 한국어 모델입니다. \u1112\u1161\u11ab\u1100\u1173\u11af",
    "Привет, мир! Это язык. ПРИВЕТ Ёлка ё",
    "Γειά σου Κόσμε, ΌΔΟΣ όδος ς σ ΕΛΛΑΔΑ",
    "مرحبا بالعالم، كيف حالك؟ الُّغَةُ العَرَبِيَّةُ ١٢٣",
    "שלום עולם! שָׁלוֹם עִבְרִית \u200fRTL\u200e mark",
    "नमस्ते दुनिया, हिन्दी क्षत्रिय। বাংলা தமிழ் తెలుగు",
    "สวัสดีชาวโลก ภาษาไทย ກຂ ភាសាខ្មែរ မြန်မာ",
    "Tiếng Việt có dấu: ắ ằ ẳ ẵ ặ đ",
    "ÀÉÎÕÜ àéîõü Straße GROẞE İstanbul ıI ŒUVRE œuvre ﬁ ﬂ ﬀ ǅ",
    # emoji
    "😀😃😄 👍🏽 👨‍👩‍👧‍👦 ❤️‍🔥 🇫🇷🇯🇵 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 1️⃣ ☺️ ☺ ™ ©",
    "a😀b 😀 c😀😀d",
    # combining marks
    "e\u0301 \u0301 a\u0300\u0301\u0302 n\u0303 q\u0307\u0323 q\u0323\u0307 \u212b \u2126 A\u030a Z\u0351\u036b\u0343\u036a\u0302",
    "cafe\u0301 caf\u00e9 nai\u0308ve \u1e9b\u0323 ﷺ ㎏ ① ﾊﾞ ½",
    # controls, zero width, private use, rare planes
    "bell\u0007 back\u0008 esc\u001b[0m del\u007f nul\ue000x \u0001\u0002\u001f c1\u0080\u008f\u009f",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word\ufeffbom soft\u00adhyphen",
    "\ufffd \ufffe \uffff \ue001 \U0001d400\U0001d7d8 \U00020000\U0002a6d6 \U0010ffff \U000f0000",
    # code
    "def f(x):\n    if x <= 1:\n        return 1\n    return x * f(x - 1)  # 递归\n",
    "#include <stdio.h>\nint main(void) {\n\tprintf(\"%d\\n\", 1 << 4);\n\treturn 0;\n}\n",
    "for (let i = 0; i < n; ++i) { a[i] += b[i] ?? c?.d; } // => !== &&= ...\n\n\n/* done */",
    "SELECT * FROM t WHERE a='x' AND b<>\"y\"; -- comment",
    "https://example.com/a_b-c?d=e&f=%20g#h user@example.org C:\\path\\to\\file $HOME ~/.rc",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case HTTPServer2Go iPhone15Pro x86_64",
    "{\"key\": [1, 2.5, null, true], \"ключ\": \"значение\"}",
    "!!! ??? ... --- === *** ((())) [[[]]] {{{}}} <<<>>> \\\\\\ ||| ^^^ ~~~ ``` ''' \"\"\" @@@ ### $$$ %%% &&&",
    "a.b,c;d:e!f?g-h_i/j\\k|l(m)n[o]p{q}r<s>t\"u'v`w~x@y#z$1%2^3&4*5+6=7",
    # what special tokens look like
    "<s>Hello</s>", "<s>", "</s><s>", "x<s>y", " <s> ", "<unk>", "<pad>a",
    "<|endoftext|>", "a<|endoftext|>b<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_end|>",
    "<|IM_START|> <|im_start |> <|im_star", "[MASK] x[MASK]y [MASK]  ", "Some word today, words wordy word.",
    "<0x0A> <0xFF> <0x41>", "▁ ▁▁ a▁b ▁a Ġ ĠĠ aĠb Ċ",
    # long words
    "a" * 300, "ab" * 150, "abcdefghijklmnopqrstuvwxyz" * 8, "é" * 100, "的" * 70, "=" * 129,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "thethethethe tokenizertokenizer worldhello HelloWorldHello",
]
