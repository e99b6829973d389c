"""The topics and sentences of the invented tweets."""

__all__ = ["FEELINGS", "LANGUAGES", "NAMES", "TOPICS"]

TOPICS: dict[str, tuple[str, ...]] = {
    "the new album": ("NewMusic", "NowPlaying"),
    "this season": ("Football", "MatchDay"),
    "the match": ("Football", "ChampionsLeague"),
    "my commute": ("MondayMotivation",),
    "coffee": ("Coffee", "MorningVibes"),
    "the election": ("Vote", "Election"),
    "this series": ("BingeWatch", "TV"),
    "the weather": ("Weather", "Summer"),
    "my phone": ("Tech", "Android"),
    "the update": ("Tech", "iOS"),
    "dinner": ("Foodie", "Yum"),
    "my cat": ("CatsOfTwitter", "Caturday"),
    "the concert": ("LiveMusic", "Tour"),
    "this book": ("AmReading", "BookTwitter"),
    "the final": ("Playoffs", "NBA"),
    "school": ("Exams", "BackToSchool"),
    "the game": ("Gaming", "PS4"),
    "the sunset": ("Photography", "NoFilter"),
    "work": ("Hiring", "WorkLife"),
    "the news": ("Breaking", "News"),
}

FEELINGS: tuple[str, ...] = (
    "I absolutely love {topic} ❤️",
    "{topic} is amazing, best thing this year!!",
    "so happy about {topic} right now 😂",
    "can't stop smiling because of {topic} :)",
    "thank you all for {topic}, you are wonderful",
    "what a great day, {topic} was perfect",  # plain-english: allow
    "proud of everyone behind {topic} 👏👏",
    "{topic} made me laugh so hard lol",
    "I hate {topic}, worst day ever",
    "{topic} is a disaster &amp; nobody cares",  # plain-english: allow
    "so tired of {topic}... really sad 😭",
    "why is {topic} always so bad?!",
    "{topic} is NOT good, very disappointed",
    "angry about {topic}, this is ridiculous",
    "lost my keys and then {topic}. terrible.",
    "afraid that {topic} will fail again",
    "reading about {topic} on the train",
    "does anybody know when {topic} starts?",  # plain-english: allow
    "{topic} at 8pm tonight, channel 4",
    "here is what I think about {topic}",
    "just posted a photo of {topic}",
    "{topic}: a thread",
    "three things about {topic} you should know",
    "{topic} &gt; everything else, but the price is awful",
)

LANGUAGES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    (
        "es",
        12,
        ("no puedo más con este día 😩", "qué bonito es todo esto ❤️", "mañana empieza lo bueno", "¿quién viene hoy?"),
    ),
    ("pt", 8, ("que saudade disso tudo", "hoje o dia foi incrível!", "não aguento mais essa semana", "bom dia 🌞")),
    ("ja", 12, ("今日はとても楽しかった！", "おはようございます☀️", "もう疲れた…寝たい", "この曲ほんとに好き♪")),
    ("fr", 6, ("quelle belle journée", "je suis trop fatigué là", "on se voit demain ?", "c'est n'importe quoi 😡")),
    ("ar", 4, ("صباح الخير يا أصدقاء", "يوم جميل جدا", "لا أصدق ما حدث اليوم")),
)
"""Languages, each with its weight in percent and sentences in it. English has the rest of the 100 percent."""

NAMES: tuple[str, ...] = (
    "Ana", "Ben", "Carla", "Dmitri", "Elif", "Femi", "Grace", "Hiro", "Ines", "Jonas", "Kira", "Luca", "Mia", "Noor",
    "Omar", "Paula", "Quinn", "Rosa", "Sam", "Tara", "Umar", "Vera", "Will", "Xenia", "Yuki", "Zoe",
)  # fmt: skip
